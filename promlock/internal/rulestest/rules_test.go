package rulestest

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
)

const folder = "../../"

var promQL = parser.NewParser(parser.Options{})

// metrics returns the labels of each metric in the README's table, which a test of promlock compares with the code.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(folder + "README.md")
	require.NoError(t, err)
	all := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		list := []string{"instance", "job"} // Prometheus adds these
		for _, l := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(m[3], -1) {
			list = append(list, l[1])
		}
		all[m[1]] = list
		if m[2] == "histogram" {
			all[m[1]+"_count"], all[m[1]+"_sum"], all[m[1]+"_bucket"] = list, list, append(slices.Clone(list), "le")
		}
	}
	require.NotEmpty(t, all)
	return all
}

// check parses an expression and requires that every metric and label in it is exported.
func check(t *testing.T, all map[string][]string, expr string) {
	t.Helper()
	parsed, err := promQL.ParseExpr(expr)
	require.NoError(t, err, expr)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			require.Contains(t, all, n.Name, expr)
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel {
					require.Contains(t, all[n.Name], m.Name, expr)
				}
			}
		case *parser.AggregateExpr:
			parser.Inspect(n.Expr, func(inner parser.Node, _ []parser.Node) error {
				if s, ok := inner.(*parser.VectorSelector); ok {
					require.Subset(t, all[s.Name], n.Grouping, expr)
				}
				return nil
			})
		}
		return nil
	})
}

func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	file, errs := rulefmt.ParseFile(folder+"alerts.yml", false, model.UTF8Validation, promQL, slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.Empty(t, errs)
	all := map[string]rulefmt.Rule{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule
		}
	}
	return all
}

func TestAlertsUseExportedMetrics(t *testing.T) {
	all := metrics(t)
	for _, rule := range alerts(t) {
		check(t, all, rule.Expr)
	}
}

func TestDashboard(t *testing.T) {
	body, err := os.ReadFile(folder + "dashboard.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			ID          int
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	require.NoError(t, json.Unmarshal(body, &board))
	all := metrics(t)
	taken := map[[2]int]string{}
	variables := strings.NewReplacer("$key", ".*", "$__rate_interval", "5m")
	ids := map[int]bool{}
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			require.NotContains(t, expr, "$")
			check(t, all, expr)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Less(t, at[0], 24, p.Title)
				require.Empty(t, taken[at], "%s overlaps it", p.Title)
				taken[at] = p.Title
			}
		}
	}
	require.Len(t, board.Templating.List, 2)
	require.Equal(t, map[string]any{"query": "label_values(leasehold_leader, key)", "refId": "key"}, board.Templating.List[1].Query)
}

// Two processes, a and b, are scraped every 30 s. "0+1x60" is 0 and 60 more samples, each 1 higher.
var stories = map[string]struct {
	fires, quiet string
	says         string // a part of the summary when it fires
}{
	"LeaseholdNoLeader": {
		fires: `leasehold_leader{key="k",instance="a"} 1x9 0x50
			leasehold_leader{key="k",instance="b"} 0x60
			leasehold_transitions_total{key="k",instance="b"} 1x60
			leasehold_request_duration_seconds_count{key="k",instance="b",op="get",outcome="error"} 0+10x60`,
		quiet: `leasehold_leader{key="k",instance="a"} 1x9 0x50
			leasehold_leader{key="k",instance="b"} 0x11 1x50
			leasehold_leader{key="at rest",instance="b"} 0x60
			leasehold_transitions_total{key="k",instance="b"} 1x11 2x50
			leasehold_transitions_total{key="at rest",instance="b"} 1x60
			leasehold_request_duration_seconds_count{key="at rest",instance="b",op="get",outcome="ok"} 7x60
			leasehold_request_duration_seconds_count{key="k",instance="b",op="get",outcome="ok"} 0+10x60`,
		says: "No process holds k.",
	},
	"LeaseholdTwoLeaders": {
		fires: `leasehold_leader{key="k",instance="a"} 1x60
			leasehold_leader{key="k",instance="b"} 0x9 1x50`,
		quiet: `leasehold_leader{key="k",instance="a"} 1x12 0x50
			leasehold_leader{key="k",instance="b"} 0x9 1x50
			leasehold_leader{key="another",instance="b"} 1x60`,
		says: "2 processes report that they hold k.",
	},
	"LeaseholdRenewalsFail": {
		fires: `leasehold_renewal_duration_seconds_count{key="k",outcome="ok"} 0+6x9 60x50
			leasehold_renewal_duration_seconds_count{key="k",outcome="timeout"} 0x9 0+6x50`,
		quiet: `leasehold_renewal_duration_seconds_count{key="k",outcome="ok"} 0+6x60
			leasehold_renewal_duration_seconds_count{key="k",outcome="timeout"} 0+2x60`,
		says: "100% of the renewals of k fail.",
	},
	"LeaseholdRenewalsLate": {
		fires: `leasehold_renewal_duration_seconds_sum{key="k",outcome="ok"} 0+12x60
			leasehold_renewal_remaining_seconds_sum{key="k",outcome="ok"} 0+60x60`,
		quiet: `leasehold_renewal_duration_seconds_sum{key="k",outcome="ok"} 0+0.3x60
			leasehold_renewal_duration_seconds_sum{key="k",outcome="timeout"} 0+12x60
			leasehold_renewal_remaining_seconds_sum{key="k",outcome="ok"} 0+71.7x60`,
		says: "Renewals of k take 16.67% of the validity that they grant.",
	},
	"LeaseholdFlapping": {
		fires: `leasehold_lost_total{key="k",cause="expired",instance="a"} 0x9 1x10 2x10 3x30
			leasehold_lost_total{key="k",cause="taken_over",instance="b"} 0x14 1x10 2x10 3x25`,
		quiet: `leasehold_transitions_total{key="k",instance="a"} 1+1x60
			leasehold_lost_total{key="k",cause="expired",instance="a"} 0x9 1x50
			leasehold_lost_total{key="k",cause="expired",instance="b"} 0x19 1x40`,
		says: "terms in an hour that ended against the will",
	},
	"LeaseholdOverrun": {
		fires: `leasehold_overruns_total{key="k",instance="a"} 0x9 1x50`,
		quiet: `leasehold_overruns_total{key="k",instance="a"} 1x60`,
		says:  "A function was still running when its lease on k was over.",
	},
	"LeaseholdTampered": {
		fires: `leasehold_lost_total{key="k",cause="deleted"} 0x9 1x50`,
		quiet: `leasehold_lost_total{key="k",cause="expired"} 0+1x60`,
		says:  "A lease on k was ended from outside: deleted.",
	},
	"LeaseholdTokenWentBack": {
		fires: `leasehold_token{key="k",instance="a"} 41x30 1x30
			leasehold_token{key="k",instance="b"} 41x30 1x30`,
		quiet: `leasehold_token{key="k",instance="a"} 41x60
			leasehold_token{key="k",instance="b"} 42x60`,
		says: "The fencing token of k fell to 1.",
	},
	"LeaseholdRefused": {
		fires: `leasehold_request_duration_seconds_count{key="k",op="update",outcome="permanent"} 0+1x60`,
		quiet: `leasehold_request_duration_seconds_count{key="k",op="update",outcome="precondition_failed"} 0+1x60`,
		says:  "The store refuses the operation update on k.",
	},
}

func TestAlertsFire(t *testing.T) {
	all := alerts(t)
	require.Len(t, all, len(stories))
	for name, story := range stories {
		require.Contains(t, all, name)
		t.Run(name, func(t *testing.T) {
			summaries := run(t, all[name], story.fires)
			require.NotEmpty(t, summaries)
			require.Contains(t, summaries[0], story.says)
			require.Empty(t, run(t, all[name], story.quiet))
		})
	}
}

// run evaluates a rule during half an hour of a story, and returns the summaries of the alerts that fire.
func run(t *testing.T, rule rulefmt.Rule, series string) (summaries []string) {
	t.Helper()
	store := promqltest.LoadedStorage(t, "load 30s\n"+regexp.MustCompile(`(?m)^\s*`).ReplaceAllString(series, "\t"))
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 10_000), store)
	expr, err := promQL.ParseExpr(rule.Expr)
	require.NoError(t, err)
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for at := time.Duration(0); at < 30*time.Minute; at += 30 * time.Second {
		_, err := alert.Eval(t.Context(), 0, time.Unix(0, 0).Add(at), query, nil, 0)
		require.NoError(t, err)
		for _, active := range alert.ActiveAlerts() {
			if active.State == rules.StateFiring {
				summaries = append(summaries, active.Annotations.Get("summary"))
				require.NotContains(t, active.Annotations.Get("description")+summaries[0], "error")
			}
		}
	}
	return summaries
}

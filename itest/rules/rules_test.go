package rules

import (
	"bytes"
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
	"go.yaml.in/yaml/v3"
)

const folder = "../../promlock/"

var promQL = parser.NewParser(parser.Options{})

// metrics returns the labels of each metric in the README's table, which a test of promlock
// compares with the code.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(folder + "README.md")
	require.NoError(t, err)
	all := map[string][]string{}
	for _, m := range regexp.MustCompile(
		"(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
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
	file, errs := rulefmt.ParseFile(folder+"alerts.yml", false, model.UTF8Validation, promQL,
		slog.New(slog.NewTextHandler(io.Discard, nil)))
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
	variables := strings.NewReplacer("$key", ".*", "$table", ".*", "$__rate_interval", "5m")
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
	require.Len(t, board.Templating.List, 3)
	for i, metric := range []string{"leasehold_leader", "leasehold_table_members"} {
		variable := board.Templating.List[1+i]
		require.Equal(t, map[string]any{
			"query": "label_values(" + metric + ", key)",
			"refId": variable.Name,
		}, variable.Query)
		require.Contains(t, all, metric)
	}
}

// promtoolTests is alerts_test.yml of promlock, in the format of promtool.
type promtoolTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []struct {
		Name        string
		Interval    model.Duration
		InputSeries []struct{ Series, Values string } `yaml:"input_series"`
		AlertTests  []struct {
			EvalTime model.Duration `yaml:"eval_time"`
			Alert    string         `yaml:"alertname"`
			Want     []firing       `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

type firing struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// The tests in promtool's format are what promtool makes of them. Each alert fires in one, and is
// quiet in another.
func TestAlertsFire(t *testing.T) {
	text, err := os.ReadFile(folder + "alerts_test.yml")
	require.NoError(t, err)
	var file promtoolTests
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	require.Equal(t, []string{"alerts.yml"}, file.RuleFiles)
	require.EqualValues(t, scrapeInterval, file.EvaluationInterval)
	all, fires, quiet := alerts(t), map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		t.Run(test.Name, func(t *testing.T) {
			require.EqualValues(t, scrapeInterval, test.Interval)
			var story strings.Builder
			for _, s := range test.InputSeries {
				story.WriteString(s.Series + " " + s.Values + "\n")
			}
			silent := true
			for _, at := range test.AlertTests {
				require.Contains(t, all, at.Alert)
				got := firings(t, all[at.Alert], story.String(), time.Duration(at.EvalTime)+time.Second)
				require.Equal(t, at.Want, got[len(got)-1], "%s at %v", at.Alert, at.EvalTime)
				fires[at.Alert] = fires[at.Alert] || at.Want != nil
				silent = silent && at.Want == nil
			}
			quiet[test.AlertTests[0].Alert] = quiet[test.AlertTests[0].Alert] || silent && len(test.AlertTests) > 5
		})
	}
	for name := range all {
		require.True(t, fires[name], "no test lets %s fire", name)
		require.True(t, quiet[name], "no test lets %s be quiet", name)
	}
}

const scrapeInterval = 30 * time.Second

// run evaluates a rule during half an hour of a story, and returns the summaries of the alerts that
// fire.
func run(t *testing.T, rule rulefmt.Rule, series string) (summaries []string) {
	t.Helper()
	for _, all := range firings(t, rule, series, 30*time.Minute) {
		for _, f := range all {
			summaries = append(summaries, f.Annotations["summary"])
		}
	}
	return summaries
}

// firings evaluates a rule at each scrape of a story for so long, and returns what fires each time.
func firings(t *testing.T, rule rulefmt.Rule, series string, during time.Duration) (at [][]firing) {
	t.Helper()
	store := promqltest.LoadedStorage(t, "load 30s\n"+regexp.MustCompile(`(?m)^\s*`).ReplaceAllString(series, "\t"))
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 10_000), store)
	expr, err := promQL.ParseExpr(rule.Expr)
	require.NoError(t, err)
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true,
		slog.New(slog.DiscardHandler))
	for now := time.Duration(0); now < during; now += scrapeInterval {
		_, err := alert.Eval(t.Context(), 0, time.Unix(0, 0).Add(now), query, nil, 0)
		require.NoError(t, err)
		var all []firing
		for _, active := range alert.ActiveAlerts() {
			if active.State == rules.StateFiring {
				f := firing{active.Labels.Map(), active.Annotations.Map()}
				delete(f.Labels, labels.AlertName)
				require.NotContains(t, f.Annotations["description"]+f.Annotations["summary"], "error")
				all = append(all, f)
			}
		}
		at = append(at, all)
	}
	return at
}

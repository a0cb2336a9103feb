package k8slock_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// The Deployment of docs/production.md is one that Kubernetes knows, with the probes of the page's
// service, and a grace period that is the sum beside it.
func TestDeploymentOnThePage(t *testing.T) {
	body, err := os.ReadFile("../docs/production.md")
	require.NoError(t, err)
	page := string(body)
	block := func(language string) string {
		m := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1)
		require.Len(t, m, 1, language)
		return m[0][1]
	}
	manifest, service := block("yaml"), block("go")
	var d appsv1.Deployment
	require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &d))
	require.Equal(t, appsv1.SchemeGroupVersion.String(), d.APIVersion)
	require.Equal(t, "Deployment", d.Kind)
	require.GreaterOrEqual(t, *d.Spec.Replicas, int32(2))
	require.NotEmpty(t, d.Spec.Selector.MatchLabels)
	pod := d.Spec.Template
	require.Equal(t, d.Spec.Selector.MatchLabels, pod.Labels)
	apart := pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	require.Equal(t, pod.Labels, apart[0].PodAffinityTerm.LabelSelector.MatchLabels)
	require.Equal(t, corev1.LabelHostname, apart[0].PodAffinityTerm.TopologyKey)

	require.Len(t, pod.Spec.Containers, 1)
	c := pod.Spec.Containers[0]
	require.Contains(t, page, `net.Listen("tcp", ":`+strconv.Itoa(int(c.Ports[0].ContainerPort))+`")`)
	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		require.Equal(t, c.Ports[0].ContainerPort, probe.HTTPGet.Port.IntVal)
		require.Contains(t, service, `mux.HandleFunc("GET `+probe.HTTPGet.Path+`", `)
	}
	require.Contains(t, service[strings.Index(service, "GET "+c.LivenessProbe.HTTPGet.Path):], "elector.Check(r)")

	seconds := func(text string) []time.Duration {
		var list []time.Duration
		for _, m := range regexp.MustCompile(`([\d.]+) s\b`).FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			list = append(list, time.Duration(n*float64(time.Second)))
		}
		return list
	}
	_, sum, _ := strings.Cut(manifest, "terminationGracePeriodSeconds:")
	sum, _, _ = strings.Cut(sum, "\n")
	parts := seconds(sum)
	require.Len(t, parts, 3, "the work, a request, the shutdown")
	require.Equal(t, time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second, parts[0]+parts[1]+parts[2])
	option := regexp.MustCompile("(?m)^\\| `WithTTL` \\| (.*?) \\|").FindStringSubmatch(page)
	require.NotNil(t, option)
	ttl := seconds(option[1])[0]
	require.LessOrEqual(t, parts[0], ttl, "a lease is renewed for one TTL after SIGTERM")
	require.Equal(t, clock.Attempt(365*24*time.Hour, 0, 0), parts[1], "a request at any TTL")
	require.Contains(t, service, "context.WithTimeout(context.Background(), "+
		strconv.Itoa(int(parts[2]/time.Second))+"*time.Second)")
	byDefault := clock.Attempt(ttl, ttl/5, ttl/3).Round(100 * time.Millisecond).Seconds()
	require.Contains(t, strings.Join(strings.Fields(page), " "),
		fmt.Sprintf("A request takes at most 10 s at any TTL, and %g s with the defaults.", byDefault))
}

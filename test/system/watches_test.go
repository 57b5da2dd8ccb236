// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
)

func TestWatchesThatEndLoseNothing(t *testing.T) {
	t.Parallel()
	ref := reference(t)
	kinds := []string{"pods", "namespaces", "servicecidrs.networking.k8s.io"}
	cases := []struct {
		name    string
		options simkube.Options
		cut     func(api *simkube.API, resource string)
	}{
		{
			"clean EOF",
			simkube.Options{},
			func(api *simkube.API, resource string) { api.CutWatches(resource, simkube.CleanEOF) },
		},
		{
			"EOF in a line",
			simkube.Options{},
			func(api *simkube.API, resource string) { api.CutWatches(resource, simkube.MidLine) },
		},
		{"410 in the stream", simkube.Options{}, func(api *simkube.API, resource string) { api.Expire(resource) }},
		{
			"410 as a status",
			simkube.Options{GoneStatus: true},
			func(api *simkube.API, resource string) { api.Expire(resource) },
		},
		{
			"410 without watch-list",
			simkube.Options{NoWatchList: true},
			func(api *simkube.API, resource string) { api.Expire(resource) },
		},
		{"410 after EOF", simkube.Options{GoneStatus: true}, func(api *simkube.API, resource string) {
			api.Compact()
			api.CutWatches(resource, simkube.CleanEOF)
		}},
	}
	for i := range cases {
		cases[i].options.LogSize = 100000
	}
	each(t, indices(cases), func(i int) string { return cases[i].name }, func(t *testing.T, i int) {
		c := cases[i]
		r := newRigWith(t, c.options, nil)
		r.bare()
		p := r.start()
		must(t, "the first rest", func() string { return p.settled() })
		before := map[string]int{}
		for _, kind := range kinds {
			before[kind] = r.kube.Count("watch " + kind)
		}
		stop := chaos(20*time.Millisecond, func(turn int) { c.cut(r.kube, kinds[turn%len(kinds)]) })
		defer stop()
		group := r.operatorGroup("web")
		for _, do := range workload(group) {
			do(r)
			r.churn("shop", 30)
		}
		must(t, "watches that were cut three times", func() string {
			if again := r.leastRewatched(kinds, before); again < 3 {
				r.churn("shop", 30)
				return fmt.Sprintf("a resource was watched again %d times only", again)
			}
			return ""
		})
		stop()
		last := len(ref.dumps) - 1
		must(t, "the state of an undisturbed run", func() string {
			return harness.LineDiff(ref.dumps[last], r.dump()) + r.amiss(p)
		})
		p.stop()
	})
}

// leastRewatched is how often the resource was watched again that was so the fewest times.
func (r *rig) leastRewatched(kinds []string, before map[string]int) int {
	least := 1 << 30
	for _, kind := range kinds {
		least = min(least, r.kube.Count("watch "+kind)-before[kind])
	}
	return least
}

// churn makes and deletes pods, so that there are events while something happens.
func (r *rig) churn(namespace string, n int) {
	r.t.Helper()
	for i := range n {
		r.createPod(namespace, fmt.Sprint("churn-", i))
		time.Sleep(5 * time.Millisecond)
		if i >= 5 {
			r.deletePod(namespace, fmt.Sprint("churn-", i-5))
		}
	}
	for i := n - 5; i < n; i++ {
		r.deletePod(namespace, fmt.Sprint("churn-", i))
	}
}

func indices[T any](list []T) []int {
	all := make([]int, len(list))
	for i := range all {
		all[i] = i
	}
	return all
}

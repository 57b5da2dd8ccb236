// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// A broken list: what the cloud does to it, and what an operator is told.
type brokenList struct {
	name string
	rule simcloud.Rule
	says string
}

func brokenLists() []brokenList {
	return []brokenList{
		{"500", simcloud.Rule{Action: simcloud.ActionStatus, Status: http.StatusInternalServerError}, `500`},
		{"503", simcloud.Rule{Action: simcloud.ActionStatus, Status: http.StatusServiceUnavailable}, `503`},
		{"an answer in vain", simcloud.Rule{Action: simcloud.ActionTimeout}, `timeout|deadline|no answer|Timeout`},
		{"a cut page", simcloud.Rule{Action: simcloud.ActionTruncate}, `unexpected EOF|cut|incomplete`},
		{
			"a cut second page",
			simcloud.Rule{Action: simcloud.ActionTruncate, Query: "marker="},
			`unexpected EOF|cut|incomplete`,
		},
		{
			"a 500 for the second page",
			simcloud.Rule{Action: simcloud.ActionStatus, Status: http.StatusInternalServerError, Query: "marker="},
			`500`,
		},
	}
}

// populated is a rig whose cloud pages its lists and holds what the ordinary workload makes in its first phase.
func populated(t *testing.T, group, name string, value any) (*rig, *raven) {
	t.Helper()
	return populatedIn(t, newCloud(t, simcloud.Options{PageLimit: 2}), group, name, value)
}

func populatedIn(t *testing.T, cloud *simcloud.Cloud, group, name string, value any) (*rig, *raven) {
	t.Helper()
	r := newRigWith(t, simOptions(), cloud)
	r.conf.Set("neutron", "timeout", 1)
	if group != "" {
		r.conf.Set(group, name, value)
	}
	p := r.start()
	workload("")[0](r)
	r.awaitRest(p)
	return r, p
}

func TestListThatFailsAtStartIsWaitedForAndChangesNothing(t *testing.T) {
	t.Parallel()
	each(t, []string{"port", "network"}, strings.Clone, func(t *testing.T, kind string) {
		r, p := populated(t, "", "", nil)
		p.stop()
		before := r.dump()
		r.cloud.ResetLog()
		for i, b := range brokenLists() {
			b.rule.Method, b.rule.Kind = http.MethodGet, kind
			if _, err := r.cloud.AddFault(b.rule); err != nil {
				t.Fatal(err)
			}
			p = r.start()
			p.logged(`listing the cloud, which leading waits for.*(` + b.says + `)`)
			r.wroteNothing(before)
			if i < len(brokenLists())-1 { // the last one goes on below
				p.stop()
			}
			r.cloud.ClearFaults()
		}
		must(t, "rest once the cloud lists again", func() string { return r.amiss(p) })
		r.wroteNothing(before)
		p.stop()
	})
}

func TestListThatFailsInADriftCheckChangesNothing(t *testing.T) {
	t.Parallel()
	r, p := populated(t, "raven", "drift_check_interval", 1)
	for _, b := range brokenLists() {
		before := r.dump()
		r.cloud.ResetLog()
		b.rule.Method = http.MethodGet
		b.rule.Path = `^/v2.0/(ports|networks|subnets|routers|security-groups|security-group-rules|subnetpools)$`
		failed := regexp.MustCompile(`the drift check failed; nothing is concluded from it.*(` + b.says + `)`)
		sofar := len(failed.FindAllString(p.log.String(), -1))
		if _, err := r.cloud.AddFault(b.rule); err != nil {
			t.Fatal(err)
		}
		must(t, b.name+": two drift checks that fail", func() string {
			if n := len(failed.FindAllString(p.log.String(), -1)) - sofar; n < 2 {
				return fmt.Sprintf("there were %d", n)
			}
			return ""
		})
		r.wroteNothing(before)
		r.cloud.ClearFaults()
		// And it is awake: Raven makes again what another client deletes.
		id := r.portOf("shop", "a")
		if code, _ := r.cloud.Call(simcloud.UserAdmin, simcloud.ProjectAdmin, http.MethodDelete, "/ports/"+id,
			nil); code != http.StatusNoContent {
			t.Fatalf("%s: deleting the port: %d", b.name, code)
		}
		must(t, b.name+": another port for the pod", func() string {
			if r.portOf("shop", "a") == id {
				return "the pod still names the one that is gone"
			}
			return r.amiss(p)
		})
	}
	p.stop()
}

// wroteNothing checks that no request has changed the cloud since ResetLog.
func (r *rig) wroteNothing(before string) {
	r.t.Helper()
	for _, q := range r.cloud.Log(0) {
		if q.WriteN > 0 {
			r.t.Errorf("raven wrote: %s %s %s", q.Method, q.Path, q.Body)
		}
	}
	if diff := harness.LineDiff(before, r.dump()); diff != "" {
		r.t.Errorf("the cloud has changed:\n%s", diff)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

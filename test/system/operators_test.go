// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// asOperator does something in the cloud by the credentials that raven has too.
func (r *rig) asOperator(method, path string, body any) object {
	r.t.Helper()
	code, doc := r.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, method, path, body)
	if code >= http.StatusBadRequest {
		r.t.Fatalf("%s %s: %d %v", method, path, code, doc)
	}
	return doc
}

// TestWhatOperatorsWriteSurvives: their tags and descriptions stay, also over a restart, and neither makes a second
// resource. Where they removed Raven's tags, the description still proves whose it is.
func TestWhatOperatorsWriteSurvives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.bare()
	r.conf.Set("raven", "drift_check_interval", 1)
	p := r.start()
	workload("")[0](r)
	r.awaitRest(p)
	p.stop()

	count := func() map[string]int {
		counts := map[string]int{}
		for _, kind := range []string{
			"network", "subnet", "router", "port", "security_group", "subnetpool", "security_group_rule",
		} {
			counts[kind] = r.cloud.Count(kind)
		}
		return counts
	}
	before := fmt.Sprint(count())
	edited, stripped := map[string]string{}, []string{}
	for kind, path := range map[string]string{
		"network": "networks", "subnet": "subnets", "router": "routers", "port": "ports",
	} {
		for i, o := range r.cloud.Objects(kind) {
			id, description := fmt.Sprint(o["id"]), fmt.Sprint(o["description"])
			if !strings.Contains(description, "raven:cluster=") {
				continue
			}
			r.asOperator(http.MethodPut, "/"+path+"/"+id+"/tags/anna", nil)
			if i%2 == 0 { // the tags prove it
				r.asOperator(http.MethodPut, "/"+path+"/"+id, object{kind: object{"description": "ask Anna first"}})
				edited[path+"/"+id] = kind
				continue
			}
			r.asOperator(http.MethodPut, "/"+path+"/"+id+"/tags", object{"tags": []string{"anna"}}) // the description does
			stripped = append(stripped, path+"/"+id)
		}
	}
	if len(edited) < 4 || len(stripped) < 4 {
		t.Fatalf("only %d descriptions and %d sets of tags were changed", len(edited), len(stripped))
	}

	p = r.start()
	must(t, "Raven's tags beside the operator's", func() string {
		for _, path := range stripped {
			doc := r.asOperator(http.MethodGet, "/"+path+"/tags", nil)
			tags, _ := doc["tags"].([]any)
			found := slices.ContainsFunc(tags, func(tag any) bool {
				return strings.HasPrefix(fmt.Sprint(tag), "raven:cluster=")
			})
			if !found || !slices.Contains(tags, any("anna")) {
				return fmt.Sprintf("%s has the tags %v", path, tags)
			}
		}
		return ""
	})
	r.awaitRest(p)
	p.stop()
	for path, kind := range edited {
		o, _ := r.asOperator(http.MethodGet, "/"+path, nil)[kind].(map[string]any)
		tags, _ := o["tags"].([]any)
		if o["description"] != "ask Anna first" || !slices.Contains(tags, any("anna")) {
			t.Errorf("%s has the description %q and the tags %v", path, o["description"], tags)
		}
	}
	if after := fmt.Sprint(count()); after != before {
		t.Errorf("there were %s, and are %s", before, after)
	}
}

// TestAForbiddenNeedDeletesNothing: without the ServiceCIDRs Raven does not know what the service network should be.
// What there is stays, over several drift checks and sweeps.
func TestAForbiddenNeedDeletesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.bare()
	r.conf.Set("raven", "drift_check_interval", 1)
	p := r.start()
	workload("")[0](r)
	r.awaitRest(p)
	p.stop()
	before := belongings(r.cloud, r.clusterID())
	r.kube.SetDeny(simkube.Deny{Groups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}})
	r.cloud.ResetLog()
	p = r.start()
	must(t, "a namespace that waits for the need", func() string {
		got := r.raven("status", "--address", p.address(), "--kind", "Namespace", "--state", "waiting")
		if !strings.Contains(got.out, "servicecidrs") {
			return got.out + got.errors
		}
		return ""
	})
	must(t, "three drift checks", func() string {
		lists := 0
		for _, q := range r.cloud.Log(0) {
			if q.Method == http.MethodGet && q.Kind == "router" {
				lists++
			}
		}
		if lists < 4 {
			return fmt.Sprintf("%d lists of routers", lists)
		}
		return ""
	})
	if n := r.cloud.Stats().Writes; n != 0 {
		t.Errorf("the cloud was written to %d times", n)
	}
	if diff := harness.LineDiff(before, belongings(r.cloud, r.clusterID())); diff != "" {
		t.Errorf("what there was changed:\n%s", diff)
	}
	r.kube.SetDeny()
	r.createPod("shop", "later")
	must(t, "rest, with the ServiceCIDRs", func() string { return r.amiss(p) })
	p.stop()
}

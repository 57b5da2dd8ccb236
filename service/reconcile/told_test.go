// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestTheAnswerToACreateIsTold: a server's error leaves open whether the create was carried out. Log and status say the
// answer that came, and then what Raven does.
func TestTheAnswerToACreateIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.fault(simcloud.Rule{Method: http.MethodPost, Kind: "network", Action: simcloud.ActionStatus, Status: 503})
	r := w.start(with(script("a", always(shop()))))
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, "the answer to the last request was: 503 ")
	r.stands("a", "x", state.Waiting, "it may have been carried out all the same: looking for it until ")
	w.cloud.ClearFaults()
	r.settled(1)
}

// TestADriftIsTold: what others have deleted or changed is named with its object and with what differs, in the status
// and by kind in the metric.
func TestADriftIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(with(script("a", always(shop()))).configured(drifting))
	w.createMap("a", "x")
	r.settled(1)
	if list := r.engine.Drifts(); len(list) != 0 {
		t.Errorf("before anybody has changed anything: %+v", list)
	}
	id := text(w.one("network", "shop"), "id")
	w.by("PUT", "/networks/"+id, doc("network", "name", "mine"), 200)
	w.eventually("the drift is told", func() (bool, string) {
		list := r.engine.Drifts()
		if len(list) == 0 {
			return false, "none is"
		}
		d := list[0]
		return d.Kind == "network" && d.ID == id && strings.HasPrefix(d.What, `name is "mine", was "`) &&
			strings.Contains(d.Of, "x") && !d.Found.IsZero(), d.What + " of " + d.Of
	})
	if n := measured(t, r, "raven_drifted_resources_total"); n != 1 {
		t.Errorf("%d resources have drifted", n)
	}
}

// TestADriftOfRulesIsTold as what it is, not as the attribute by which Raven keeps it.
func TestADriftOfRulesIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(with(script("a", always(setOf(group("g"))))).configured(drifting))
	w.createMap("a", "x")
	r.settled(1)
	for _, rule := range w.cloud.SecurityGroupRules() {
		if rule["security_group_id"] == w.one("security_group", "g")["id"] {
			w.by(http.MethodDelete, "/security-group-rules/"+text(rule, "id"), nil, http.StatusNoContent)
		}
	}
	w.eventually("the drift is told", func() (bool, string) {
		list := r.engine.Drifts()
		if len(list) == 0 {
			return false, "none is"
		}
		return list[0].What == "has rules of others is false, was true", list[0].What
	})
}

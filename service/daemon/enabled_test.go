// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestDriversAreToldOfEachOther: those that are enabled, so that they can share their work.
func TestDriversAreToldOfEachOther(t *testing.T) {
	r := newRig(t)
	r.set("raven", "drivers", configmaps+","+serviceaccounts)
	s, err := r.loader(nil).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Programs {
		if told := p.launch(nil).Enabled; !slices.Equal(told, []string{configmaps, serviceaccounts}) {
			t.Errorf("driver %s is told of %v", p.Name, told)
		}
	}
}

// TestDriversAreToldOfWhatWasEnabled: a driver that is not enabled and has security groups is told of as if it were,
// and said in the log; without them, from a reload on, it is not.
func TestDriversAreToldOfWhatWasEnabled(t *testing.T) {
	r := newRig(t)
	r.set("raven", "drivers", configmaps)
	r.set("raven", "cluster_id", "c1")
	identity := plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: serviceaccounts, UID: "u1"}, Name: "group"}
	status, answer := r.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, http.MethodPost, "/security-groups",
		map[string]any{"security_group": map[string]any{"name": "g", "description": identity.Describe("")}})
	if status != http.StatusCreated {
		t.Fatalf("status %d: %v", status, answer)
	}
	group, _ := answer["security_group"].(map[string]any)
	p := r.start(nil)
	ready := func() string {
		if state := p.of(configmaps).State; state != "ready" {
			return "it is " + state
		}
		return ""
	}
	r.await("the driver to be ready", ready)
	if got := p.watcher(configmaps).driver().Info().Version; got != "beside configmaps and serviceaccounts" {
		t.Errorf("driver configmaps is %s", got)
	}
	if warning := "driver=" + drivers.ShortName(serviceaccounts); !strings.Contains(p.log.String(), warning) {
		t.Errorf("the log does not say %s", warning)
	}
	r.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, http.MethodDelete,
		"/security-groups/"+fmt.Sprint(group["id"]), nil)
	if err := p.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.await("the driver to be ready again", ready)
	if got := p.watcher(configmaps).driver().Info().Version; got != "beside configmaps" {
		t.Errorf("driver configmaps is %s", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/http"
	"slices"
	"testing"

	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// TestPollOfTheUntagged: one that has lost its tag is not gone; who has them all needs one list.
func TestPollOfTheUntagged(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	_, subnet := place(t, c, "10.0.0.0/24")
	lb := must(t, c, "lb", wholeBalancer(subnet.ID, "amphora"))
	settledList(t, c)
	polls := func(wanted, requests int, known ...string) {
		t.Helper()
		s.ResetLog()
		found, err := c.Poll(t.Context(), "c1", known)
		if err != nil || len(found) != wanted || wanted > 0 && found[0].ID != lb.ID {
			t.Errorf("found %v, %v", found, err)
		}
		if n := len(s.Log(0)); n != requests {
			t.Errorf("%d requests, want %d", n, requests)
		}
	}
	polls(1, 1)
	polls(1, 1, lb.ID)
	polls(1, 2, lb.ID, absent)
	tagged := func(tags ...string) {
		t.Helper()
		status, doc := s.Call(
			sim.UserKuryr, sim.ProjectKuryr, http.MethodPut, "/lbaas/loadbalancers/"+lb.ID,
			map[string]any{"loadbalancer": map[string]any{"tags": tags}},
		)
		if status >= 300 {
			t.Fatalf("%d %v", status, doc)
		}
		settledList(t, c)
	}
	tagged("mine")
	polls(1, 2, lb.ID)
	polls(0, 1)

	// They come back beside those of others.
	for range 2 {
		s.ResetLog()
		if err := c.AddTags(t.Context(), lb.ID, stacktest.Named("lb").Tags()); err != nil {
			t.Fatal(err)
		}
		settledList(t, c)
	}
	for _, r := range s.Log(0) {
		if r.Method != http.MethodGet {
			t.Errorf("what is there was written: %s %s", r.Method, r.Path)
		}
	}
	if err := c.RemoveTags(t.Context(), lb.ID, stacktest.Named("lb").Tags()[3:]); err != nil {
		t.Fatal(err)
	}
	now := settledList(t, c)
	if len(now.Tags) != 4 || !slices.Contains(now.Tags, "mine") ||
		slices.Contains(now.Tags, stacktest.Named("lb").Tags()[3]) {
		t.Errorf("its tags are %v", now.Tags)
	}
	polls(1, 1, lb.ID)
}

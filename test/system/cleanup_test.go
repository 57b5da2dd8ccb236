// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// cleaned is what is read of `raven cleanup -o json`.
type cleaned struct {
	Remove []struct {
		Kind string `json:"kind"`
	} `json:"remove"`
	Removed int `json:"removed"`
	Left    []struct {
		Reason string `json:"reason"`
	} `json:"left"`
}

func (r *rig) cleanup(want int, args ...string) cleaned {
	r.t.Helper()
	got := r.raven(append([]string{"cleanup", "--config-file", r.configure(), "-o", "json"}, args...)...)
	if got.status != want {
		r.t.Errorf("raven cleanup %v: exit status %d, wanted %d: %s%s", args, got.status, want, tailOf(got.out), got.errors)
	}
	var c cleaned
	if err := json.Unmarshal([]byte(got.out), &c); err != nil && want != 64 {
		r.t.Errorf("raven cleanup %v: %v: %s%s", args, err, tailOf(got.out), got.errors)
	}
	return c
}

func TestCleanupRemovesWhatOneClusterLeftAndNothingElse(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t, simcloud.Options{})
	foreign := cloud.Dump(simcloud.DumpOptions{IDs: true})
	one, two := newRigWith(t, simOptions(), cloud), newRigWith(t, simOptions(), cloud)
	gone, stays := one.clusterID(), two.clusterID()
	for _, r := range []*rig{one, two} {
		r.bare()
		p := r.start()
		workload("")[0](r)
		must(t, "rest", p.settled)
		p.stop()
	}
	before := belongings(cloud, stays)
	if n := strings.Count(belongings(cloud, gone), "\n"); n < 20 {
		t.Fatalf("the cluster that goes has only %d resources", n)
	}

	t.Run("the command line is checked", func(t *testing.T) {
		if got := one.raven("cleanup", "--config-file", one.configure(), "--yes"); got.status != 64 ||
			!strings.Contains(got.errors, "--cluster") {
			t.Errorf("--yes without --cluster: exit status %d: %s", got.status, got.errors)
		}
	})
	t.Run("clusters are listed", func(t *testing.T) {
		got := one.raven("cleanup", "--config-file", one.configure())
		for _, id := range []string{gone, stays} {
			if !regexp.MustCompile(id + ` +.*\d+ network, `).MatchString(got.out) {
				t.Errorf("the list lacks cluster %s:\n%s%s", id, got.out, got.errors)
			}
		}
	})
	planned := 0
	t.Run("without --yes nothing is removed", func(t *testing.T) {
		cloud.ResetLog()
		c := one.cleanup(2, "--cluster", gone)
		if planned = len(c.Remove); planned < 20 || c.Removed != 0 {
			t.Errorf("%d to remove, %d removed", planned, c.Removed)
		}
		if n := cloud.Stats().Writes; n != 0 {
			t.Errorf("the cloud was written to %d times", n)
		}
		if c := one.cleanup(0, "--cluster", "nobody"); len(c.Remove) != 0 {
			t.Errorf("a cluster that never was has %d resources", len(c.Remove))
		}
	})
	t.Run("a cluster that answers is asked twice about", func(t *testing.T) {
		got := one.raven("cleanup", "--config-file", one.configure(), "--cluster", gone, "--yes")
		if got.status != 1 || !strings.Contains(got.errors, "--force") || belongings(cloud, gone) == "" {
			t.Errorf("exit status %d: %s", got.status, got.errors)
		}
	})
	t.Run("what others use there is named and stays", func(t *testing.T) {
		network := ""
		for _, n := range cloud.Networks() {
			if n["name"] == "shop" && strings.Contains(n["description"].(string), gone) {
				network = n["id"].(string)
			}
		}
		_, doc := cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, http.MethodPost, "/ports",
			object{"port": object{"name": "annas", "network_id": network}})
		port, _ := doc["port"].(map[string]any)
		c := one.cleanup(1, "--cluster", gone, "--yes", "--force", "--patience", "100ms")
		if len(c.Left) == 0 || len(c.Left) > 3 || c.Removed+len(c.Left) != planned {
			t.Errorf("%d removed of %d, left: %v", c.Removed, planned, c.Left)
		}
		reasons := ""
		for _, l := range c.Left {
			reasons += l.Reason + "\n"
		}
		if !strings.Contains(reasons, "annas") {
			t.Errorf("the foreign port is not named: %s", reasons)
		}
		if code, doc := cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, http.MethodDelete,
			fmt.Sprintf("/ports/%s", port["id"]), nil); code != http.StatusNoContent {
			t.Errorf("deleting the foreign port: %d %v", code, doc)
		}
	})
	t.Run("then all of it goes, and only that", func(t *testing.T) {
		one.cleanup(0, "--cluster", gone, "--yes", "--force")
		if left := belongings(cloud, gone); left != "" {
			t.Errorf("left:\n%s", left)
		}
		if diff := harness.LineDiff(before, belongings(cloud, stays)); diff != "" {
			t.Errorf("the other cluster's was changed:\n%s", diff)
		}
		two.cleanup(0, "--cluster", stays, "--yes", "--force")
		if diff := harness.LineDiff(foreign, cloud.Dump(simcloud.DumpOptions{IDs: true})); diff != "" {
			t.Errorf("the cloud is not as it was at first:\n%s", diff)
		}
	})
}

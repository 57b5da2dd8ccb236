// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/test/sim/kube"
)

func holder(t *testing.T, folder string) *leader.Holder {
	t.Helper()
	h, err := leader.NewHolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// The name stays while the file does, and is no other process's.
func TestHolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	first := holder(t, folder)
	second := holder(t, folder)
	if first.Name == second.Name {
		t.Errorf("two have the name %s", first.Name)
	}
	name := first.Name
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	again := holder(t, folder)
	if again.Name != name {
		t.Errorf("the next one is %s, before it was %s", again.Name, name)
	}
	// Who lost the file while it lived keeps its name to itself.
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if other := holder(t, folder); other.Name == again.Name || other.Name == second.Name {
		t.Errorf("the name %s is taken", other.Name)
	}
	if other := holder(t, filepath.Join(t.TempDir(), "elsewhere")); other.Name == name {
		t.Errorf("another folder has the same name %s", name)
	}
}

func TestHolderWithoutAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	one, err := leader.NewHolder(file)
	two, _ := leader.NewHolder(file)
	if err == nil || one.Name == "" || one.Name == two.Name {
		t.Errorf("%v and %v, %v", one, two, err)
	}
}

// A process that was killed is followed at once by one with its name, while others wait until the Lease expires.
func TestASuccessorOfTheSameNameLeadsAtOnce(t *testing.T) {
	const long = 10 * time.Minute // longer than the test may take
	api := cluster(t, kube.Options{})
	lasting := func(c *leader.Config) { c.Duration, c.RenewDeadline = long, long-time.Minute }
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	_, err := api.Create(leases(), map[string]any{
		"metadata": map[string]any{"namespace": "kube-system", "name": "raven"},
		"spec": map[string]any{
			"holderIdentity": "host_1", "leaseDurationSeconds": int64(long / time.Second), "acquireTime": now, "renewTime": now,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	other := run(t, api, "host_2", lasting)
	eventually(t, "the other one knows", func() string {
		if s := other.candidate.Status(); s.Holder != "host_1" {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	run(t, api, "host_1", lasting).await("leads")
	if other.candidate.Status().Leading {
		t.Error("the other one leads")
	}
}

// A leader whose core makes no progress gives leadership up, and another one leads.
func TestAStalledLeaderGivesUp(t *testing.T) {
	api := cluster(t, kube.Options{})
	stalls := make(chan struct{})
	first := run(t, api, "host_1", func(c *leader.Config) {
		c.Stalled = func() []string {
			select {
			case <-stalls:
				return []string{"core"}
			default:
				return nil
			}
		}
	})
	first.await("leads")
	second := run(t, api, "host_2", nil)
	close(stalls)
	second.await("leads")
}

// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestCleanupLeavesWhatIsRetained, unless it is told otherwise; a list that fails removes nothing.
func TestCleanupLeavesWhatIsRetained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	set := shop()
	set.Resources = append(set.Resources, drivers.Resource{
		Name: "keep", OnDelete: drivers.Retain, Spec: drivers.Network{Name: new("keep")},
	})
	before := w.dump()
	r := w.start(with(script("a", always(set))))
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	c := w.cleanup(nil, time.Second)
	ctx := t.Context()

	remove, err := w.cloud.AddFault(simcloud.Rule{
		Method: "GET", Kind: "subnet", Action: simcloud.ActionStatus, Status: 500,
	})
	if err != nil {
		t.Fatal(err)
	}
	full := w.dump()
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := c.Run(short); err == nil {
		t.Error("a list that fails is no error")
	}
	if w.dump() != full {
		t.Error("something was removed though a list failed")
	}
	w.cloud.RemoveFault(remove)

	p, err := c.Plan(ctx)
	if err != nil || len(p.Retained) != 1 || len(p.Steps) < 5 {
		t.Fatalf("%d steps, %d retained (%v)", len(p.Steps), len(p.Retained), err)
	}
	if len(p.Unseen) != 1 || !strings.Contains(p.Unseen[0], "[ovn] nb_connection") {
		t.Errorf("unseen %q, want that OVN was not listed", p.Unseen)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if _, err := c.Run(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if left, err := c.Run(ctx); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
	if n := len(w.named("network", "keep")); n != 1 || w.cloud.Count("router") != 0 {
		t.Errorf("%d of the retained network:\n%s", n, w.dump())
	}
	c.Retained = true
	if left, err := c.Run(ctx); err != nil || len(left) > 0 || w.dump() != before {
		t.Errorf("left %v (%v):\n%s", left, err, w.dump())
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/service/reconcile"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// hanging is a driver whose every answer waits, whatever its caller's context says.
type hanging struct {
	drivers.Driver
	release chan struct{}
}

func (h hanging) Translate(ctx context.Context, o drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	<-h.release
	return h.Driver.Translate(ctx, o, needs)
}

func (r *raven) work(name string) reconcile.Work {
	r.w.t.Helper()
	for _, w := range r.engine.Work() {
		if w.Name == name {
			return w
		}
	}
	r.w.t.Fatalf("there is no %q in %+v", name, r.engine.Work())
	return reconcile.Work{}
}

// A queue whose passes all hang holds work and ends none of it, while nothing is asked of the cloud; when they go on
// it moves.
func TestWorkThatHangsIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.createNamespace("shop")
	for i := range 3 {
		w.createPod("shop", fmt.Sprintf("p%d", i))
	}
	h := hanging{pod.New(), make(chan struct{})}
	r := w.start(setup{drivers: map[string]drivers.Driver{"namespace": namespace.New(), "pod": h}})
	w.eventually("hanging passes, and rest elsewhere", func() (bool, string) {
		pods, spaces := r.work("queue pod"), r.work("queue namespace")
		return pods.Held == 3 && spaces.Held == 0 && spaces.Ended > 0 && !r.cloud.Busy(), fmt.Sprintf("%+v %+v", pods, spaces)
	})
	if before := r.work("queue pod"); before.Ended != 0 {
		t.Errorf("something has ended: %+v", before)
	}
	close(h.release)
	r.settled(systemNamespaces + 4)
	w.eventually("an empty queue", func() (bool, string) {
		now := r.work("queue pod")
		return now.Held == 0 && now.Ended >= 3, fmt.Sprintf("%+v", now)
	})
}

// While an answer of the cloud is waited for, the cloud is busy: that is no standing still.
func TestWorkThatWaitsForTheCloudIsBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{})
	r.settled(systemNamespaces)
	if r.cloud.Busy() {
		t.Error("busy at rest")
	}
	if _, err := w.cloud.AddFault(simcloud.Rule{
		Method: http.MethodPost, Kind: "network", Times: 1, Action: simcloud.ActionDelay,
		Delay: simcloud.Duration(time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	w.createNamespace("shop")
	w.eventually("a slow request", func() (bool, string) {
		now := r.work("queue namespace")
		return now.Held == 1 && r.cloud.Busy(), fmt.Sprintf("%+v", now)
	})
	r.settled(systemNamespaces + 1)
	drift := r.work("drift check")
	if drift.Held != 0 || drift.Ended == 0 {
		t.Errorf("the first look at the cloud is not counted: %+v", drift)
	}
}

// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/test/sim/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that would wait for ever.
const patience = 2 * time.Minute

func leases() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
}

func cluster(t *testing.T, o kube.Options) *kube.API {
	t.Helper()
	api := kube.New(o)
	if _, err := api.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api
}

// runner is a candidate at work, and what it did.
type runner struct {
	t         *testing.T
	candidate *leader.Candidate
	stop      func()

	mu     sync.Mutex
	events []string
	linger time.Duration // how long its work goes on once it is asked to end
}

func run(t *testing.T, api *kube.API, name string, change func(*leader.Config)) *runner {
	t.Helper()
	c := leader.Config{
		REST: &rest.Config{Host: api.URL(), QPS: -1}, Namespace: "kube-system", Name: "raven", Identity: name,
		Duration: 2 * time.Second, RenewDeadline: time.Second, RetryPeriod: 50 * time.Millisecond,
	}
	if change != nil {
		change(&c)
	}
	candidate, err := leader.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, candidate: candidate}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { candidate.Run(ctx, r.work) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

func (r *runner) work(ctx, lease context.Context) {
	r.note("leads")
	<-ctx.Done()
	r.mu.Lock()
	linger := r.linger
	r.mu.Unlock()
	select {
	case <-lease.Done():
	case <-time.After(linger):
	}
	if lease.Err() != nil {
		r.note("lost: " + context.Cause(lease).Error())
	} else {
		r.note("ended")
	}
}

func (r *runner) note(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *runner) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func (r *runner) await(event string) {
	r.t.Helper()
	eventually(r.t, event, func() string {
		if seen := r.seen(); !slices.Contains(seen, event) {
			return fmt.Sprintf("it has seen %q, and is %+v", seen, r.candidate.Status())
		}
		return ""
	})
}

func eventually(t *testing.T, what string, amiss func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		last := amiss()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %q: %s", what, last)
		}
	}
}

func TestOneLeadsAndTheOtherFollows(t *testing.T) {
	api := cluster(t, kube.Options{})
	one := run(t, api, "one", nil)
	one.await("leads")
	two := run(t, api, "two", nil)
	eventually(t, "two knows", func() string {
		if s := two.candidate.Status(); s.Holder != "one" || s.Leading {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if !one.candidate.Valid() || two.candidate.Valid() || len(two.seen()) > 0 {
		t.Errorf("one leads: %t, two leads: %t, and has seen %q", one.candidate.Valid(), two.candidate.Valid(), two.seen())
	}
	// The Lease is renewed while work ends, and released after it has.
	one.mu.Lock()
	one.linger = 3 * time.Second // longer than the Lease lasts by itself
	one.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		one.stop()
	}()
	two.await("leads")
	if seen := one.seen(); !slices.Contains(seen, "ended") {
		t.Errorf("two leads while the work of one goes on: %q", seen)
	}
	<-ended
	two.stop()
	if s := two.candidate.Status(); s.Leading || s.Terms != 1 {
		t.Errorf("after the end two is %+v", s)
	}
}

func TestTheLeaseIsReleasedBesideALateRenewal(t *testing.T) {
	api := cluster(t, kube.Options{})
	long := func(c *leader.Config) { // no renewal comes in the test
		c.Duration, c.RenewDeadline, c.RetryPeriod = 90*time.Second, 75*time.Second, 30*time.Second
	}
	one := run(t, api, "one", long)
	one.await("leads")
	fault := kube.Fault{Method: http.MethodPut, Path: "/leases/", Status: http.StatusConflict, Times: 2}
	if _, err := api.Inject(fault); err != nil {
		t.Fatal(err)
	}
	one.stop()
	lease, err := api.Get(leases(), "kube-system", "raven")
	if err != nil {
		t.Fatal(err)
	}
	if spec, _ := lease["spec"].(map[string]any); spec["holderIdentity"] != "" {
		t.Errorf("the Lease is still held: %v", spec)
	}
}

func TestALeaderThatCannotRenewEndsBeforeAnotherBegins(t *testing.T) {
	api := cluster(t, kube.Options{})
	one := run(t, api, "one", nil)
	one.await("leads")
	two := run(t, api, "two", nil)
	// The server lets nobody renew, and then only those who do not lead.
	remove, err := api.Inject(kube.Fault{Method: http.MethodPut, Path: "/leases/", Hang: true})
	if err != nil {
		t.Fatal(err)
	}
	one.await("lost: " + leader.ErrLost.Error())
	if one.candidate.Valid() {
		t.Error("one still believes that it leads")
	}
	if len(two.seen()) > 0 {
		t.Error("two leads before the Lease has expired")
	}
	remove()
	eventually(t, "another leader", func() string {
		if one.candidate.Valid() == two.candidate.Valid() {
			return fmt.Sprintf("one: %+v, two: %+v", one.candidate.Status(), two.candidate.Status())
		}
		return ""
	})
}

func TestATermIsBoundToTheLastRenewalThatWasSent(t *testing.T) {
	api := cluster(t, kube.Options{})
	one := run(t, api, "one", nil)
	one.await("leads")
	// Renewals arrive, but their answers do not come back: nobody can tell whether they did.
	if _, err := api.Inject(kube.Fault{Method: http.MethodPut, Path: "/leases/", Apply: true, Hang: true}); err != nil {
		t.Fatal(err)
	}
	began := time.Now() // the last renewal that was answered was sent before
	last := began
	for now := time.Now(); one.candidate.Valid(); now = time.Now() {
		last = now
		time.Sleep(time.Millisecond)
	}
	if led := last.Sub(began); led > time.Second {
		t.Errorf("it led for %s after the last renewal, wanted a second at most", led)
	}
	one.await("lost: " + leader.ErrLost.Error())
}

func TestProblemsSayWhatToDo(t *testing.T) {
	api := cluster(t, kube.Options{})
	if _, err := api.Inject(kube.Fault{Path: "/leases", Status: http.StatusForbidden}); err != nil {
		t.Fatal(err)
	}
	one := run(t, api, "one", nil)
	eventually(t, "the problem", func() string {
		text := one.candidate.Status().Problem
		if !strings.Contains(text,
			"let this account get, create and update leases.coordination.k8s.io in namespace kube-system") {
			return "it says " + text
		}
		return ""
	})
	api.ClearFaults()
	one.await("leads")
	if text := one.candidate.Status().Problem; text != "" {
		t.Errorf("it still says %s", text)
	}
	two := run(t, api, "two", func(c *leader.Config) { c.Namespace = "nowhere" })
	eventually(t, "the missing namespace", func() string {
		if text := two.candidate.Status().Problem; !strings.Contains(text, "lease_namespace") {
			return "it says " + text
		}
		return ""
	})
}

func TestALeaseThatIsTakenAwayIsLost(t *testing.T) {
	api := cluster(t, kube.Options{})
	one := run(t, api, "one", nil)
	one.await("leads")
	_, err := api.Patch(leases(), "kube-system", "raven", "application/merge-patch+json",
		[]byte(`{"spec":{"holderIdentity":"somebody"}}`))
	if err != nil {
		t.Fatal(err)
	}
	one.await("lost: " + leader.ErrLost.Error())
	lease, err := api.Get(leases(), "kube-system", "raven")
	if err != nil {
		t.Fatal(err)
	}
	if spec, _ := lease["spec"].(map[string]any); spec["holderIdentity"] != "somebody" {
		t.Errorf("the Lease of another was written to: %v", spec)
	}
}

func TestFromConfig(t *testing.T) {
	for name, c := range map[string]struct {
		set   map[string]string
		wrong string
	}{
		"the defaults":        {nil, ""},
		"a deadline too late": {map[string]string{"lease_renew_deadline": "15"}, "two would lead at once"},
		"a part of a second":  {map[string]string{"lease_duration": "75.5"}, "whole seconds"},
		"renewals too far apart": {
			map[string]string{"lease_retry_period": "9"}, "must be more than 1.2 times lease_retry_period",
		},
		"no name": {map[string]string{"lease_name": ""}, "lease_name"},
	} {
		t.Run(name, func(t *testing.T) {
			args := map[config.Name][]string{}
			for option, value := range c.set {
				args[config.Name{Group: "kubernetes", Name: option}] = []string{value}
			}
			values, _, err := config.Load(config.Sources{Args: args}, leader.Options())
			if err != nil {
				t.Fatal(err)
			}
			got, err := leader.FromConfig(values)
			switch {
			case c.wrong == "" && err != nil:
				t.Error(err)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("the error is %v, wanted one with %q", err, c.wrong)
			case c.wrong == "" && (got.Namespace != "kube-system" || got.Name != "raven" || got.Duration != 15*time.Second):
				t.Errorf("read %+v", got)
			}
		})
	}
}

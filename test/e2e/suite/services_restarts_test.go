// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// TestServicesRestarts kills everything in turn with kill -9 in the life of a Service: while its load balancer is
// made, while its endpoints go and come, and while it is deleted. Raven, the driver, Octavia's API and its workers:
// each turn must end as one without a disturbance does.
//
// Octavia keeps the work of provider ovn in the memory of its API, and that of provider amphora in that of its
// worker: what a kill takes along stays PENDING_* for good, and only an administrator can do something about it.
// Raven has to say so, and to put it right once that has been done. The driver agent, which the provider tries again
// to reach for half a minute each time, is killed once only, and the worker in TestServicesAmphora, but in runs of
// full size.
func TestServicesRestarts(t *testing.T) {
	s := balancing(t)
	createNamespace(t, "sr-a")
	webPods(t, "sr-a", "w1", "w2")
	s.settled(t)
	turns := []turn{
		{name: "nothing"},
		{name: "raven", kill: func(*testing.T) { s.raven.Kill() }, start: s.restart},
		{name: "driver-lbaas", kill: killDriver(s, "lbaas")},
		{name: stack.OctaviaAPI, server: true},
		{name: stack.OctaviaAgent, server: true, first: true},
	}
	if world.full {
		turns[len(turns)-1].first = false
		turns = append(turns, turn{name: "amphora", provider: "amphora"},
			turn{name: stack.OctaviaWorker, server: true, provider: "amphora"})
	}
	undisturbed := map[string][]string{}
	for _, turn := range turns {
		t.Run(turn.name, func(t *testing.T) {
			turn.control(t)
			ends := turn.live(t, s)
			if undisturbed[turn.provider] == nil {
				undisturbed[turn.provider] = ends
			}
			for i, end := range ends {
				if diff := harness.LineDiff(undisturbed[turn.provider][i], end); diff != "" {
					t.Errorf("at stage %d the cloud differs (-undisturbed +this):\n%s", i, diff)
				}
			}
		})
	}
}

// live is the life of a Service in a turn. It returns how the cloud stands after each stage.
func (r *turn) live(t *testing.T, s *site) []string {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() { // the next turn needs the name
			_ = serviceObjects("sr-a").Delete(context.Background(), "web", metav1.DeleteOptions{})
		}
	})
	var notes []string
	if r.provider != "" {
		notes = append(notes, "kuryr.org/octavia-provider="+r.provider)
	}
	spec := bothProtocols()
	spec["type"] = "LoadBalancer"
	var ends []string
	var kill time.Time
	end := func() {
		t.Helper()
		s.settledWithHelp(t, kill)
		ends = append(ends, s.stands(t, "sr-a", "web"))
	}
	readiness(t, "sr-a", "w1", true)
	readiness(t, "sr-a", "w2", true)

	createService(t, "sr-a", "web", spec, notes...)
	vip, _ := addressOf(t, "sr-a", "web")
	kill = r.disturb(t, vip, func(lb thing) bool { return lb != nil })
	endpoints(t, "sr-a", "web", 2)
	end()

	readiness(t, "sr-a", "w1", false)
	readiness(t, "sr-a", "w2", false)
	was := balancerAt(t, vip)
	kill = r.disturb(t, vip, func(lb thing) bool {
		return lb == nil || lb.str("provisioning_status") != "ACTIVE" || lb.str("updated_at") != was.str("updated_at")
	})
	readiness(t, "sr-a", "w2", true)
	endpoints(t, "sr-a", "web", 1)
	end()

	deleteService(t, "sr-a", "web")
	kill = r.disturb(t, vip, func(lb thing) bool { return lb == nil || lb.str("provisioning_status") == "PENDING_DELETE" })
	end()
	return ends
}

// disturb kills in the middle of a change, and starts again. It returns when it killed.
func (r *turn) disturb(t *testing.T, vip string, middle func(lb thing) bool) time.Time {
	t.Helper()
	if r.kill == nil || r.first && r.disturbed {
		return time.Time{}
	}
	r.disturbed = true
	underWay(t, vip, middle)
	r.kill(t)
	now := time.Now()
	if r.start != nil {
		r.start(t)
	}
	return now
}

func balancerAt(t *testing.T, vip string) thing {
	t.Helper()
	found, err := world.cloud.list(t.Context(), balancerKind, "vip_address="+vip)
	if err != nil || len(found) != 1 {
		t.Fatalf("at %s there are the load balancers %v (%v)", vip, found, err)
	}
	return found[0]
}

// stands is how a Service stands in the cloud, with its name in place of its id.
func (s *site) stands(t *testing.T, namespace, name string) string {
	t.Helper()
	list, err := serviceObjects(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	rename := map[string]string{}
	for _, svc := range list.Items {
		rename[string(svc.GetUID())] = "<" + name + ">"
	}
	text, err := s.dump(t.Context(), rename)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// settledWithHelp is settled after a kill at some time. A load balancer from before that, which Octavia keeps busy
// for good, is given up by an administrator: once an Event has said that this is needed, or, where the Service is
// gone and there is nothing left to say it of, when it has stood still for long.
func (s *site) settledWithHelp(t *testing.T, kill time.Time) {
	t.Helper()
	helped, since := map[string]bool{}, map[string]time.Time{}
	await(t, "cloud and cluster to agree", func(ctx context.Context) string {
		amiss := s.amiss(ctx)
		if amiss == "" {
			return ""
		}
		balancers, err := world.cloud.list(ctx, balancerKind, "project_id="+world.cloud.project)
		if err != nil {
			return amiss + "; " + err.Error()
		}
		for _, lb := range balancers {
			id, state := lb.str("id"), lb.str("provisioning_status")
			made, err := time.Parse("2006-01-02T15:04:05", lb.str("created_at"))
			if err != nil || !strings.HasPrefix(state, "PENDING_") || helped[id] || made.After(kill) {
				continue
			}
			if since[id].IsZero() {
				since[id] = time.Now()
			}
			needed, err := s.helpNeeded(ctx, lb, time.Since(since[id]))
			if err != nil || !needed {
				amiss += fmt.Sprintf("; no Event says that load balancer %s is %s (%v)", id, state, err)
				continue
			}
			helped[id] = true
			t.Logf("Octavia has lost its work on load balancer %s, which stays %s: an administrator gives it up", id, state)
			if err := giveUp(ctx, id); err != nil {
				return err.Error()
			}
		}
		return amiss
	})
	if len(helped) == 0 {
		return
	}
	if err := removeForgotten(t.Context(), t); err != nil {
		t.Error(err)
	}
}

func (s *site) helpNeeded(ctx context.Context, lb thing, stood time.Duration) (bool, error) {
	namespace, name, _ := strings.Cut(lb.str("name"), "/")
	name, _, _ = strings.Cut(name, ":")
	if _, err := serviceObjects(namespace).Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return stood > activation+time.Minute, nil // live work takes some 10 s here
	}
	told, err := told(ctx, namespace, "LoadBalancer", lb.str("id")+" has not become ready")
	return len(told) > 0, err
}

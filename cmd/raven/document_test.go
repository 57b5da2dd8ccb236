// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/networkpolicy/semantics"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/handover"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

var update = flag.Bool("update", false, "write the golden files")

// then is when everything in the golden documents happened.
func then() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func goldenObject() reconcile.ObjectStatus {
	next := then().Add(30 * time.Second)
	return reconcile.ObjectStatus{
		Driver: "pod", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "0f5b6a3c-2f0e-4a57-8d0c-7a3d9c1b2e01",
		State: state.Failing, Reasons: []string{"create port: 503 Service Unavailable"}, Since: then(), NextTry: &next,
		Tries: 3, HandoverGap: 0.25, Messages: []string{"note: a word of the driver"},
		Resources: []reconcile.ResourceStatus{{
			Kind: drivers.KindNetwork, Name: "shop", ID: "6c9c5b0e-6d0f-4f0e-9f5e-0d8a1c2b3e4f", Role: "network", Shared: true,
			Status: "ACTIVE", Attrs: map[string]any{"mtu": 1442},
		}},
	}
}

func goldenReport() daemon.Report {
	l := daemon.LeaderReport{Status: leader.Status{
		Identity: "node-1_6e8e7c8e25bf", Lease: "raven/raven", Holder: "node-1_6e8e7c8e25bf", Leading: true, Since: then(),
		Terms: 1, Problem: "no answer", Refused: true,
	}}
	return daemon.Report{
		FormatVersion: formatVersion, Version: "1.0.0", Cluster: "c1", Project: "p1", Started: then(), Ready: true,
		WaitsFor: "keystone: 503", Leader: &l,
		Drivers: []daemon.DriverReport{{
			DriverStatus: reconcile.DriverStatus{
				Name: "pod", Version: "1", Objects: 1, Replayed: true,
				Guard: &reconcile.Guard{Driver: "pod", Held: 30, Allowed: 20},
			},
			Path: "/usr/lib/raven/plugins/raven-driver-pod", PID: 42, State: "ready", Restarts: 1,
			Watches: []daemon.WatchReport{{Name: "pods", Synced: true, Objects: 1, Error: "forbidden"}}, Problem: "none",
		}},
		Disabled: []reconcile.DisabledStatus{{Driver: "lbaas", Objects: 1, Resources: 2, Problem: "none"}},
		Counts:   map[state.Phase]int{state.Failing: 1},
		Requests: neutron.Stats{Stats: openstack.Stats{
			Requests: []openstack.Request{{
				Method: "POST", Kind: "ports", Status: "5xx", Count: 3, Items: 3, Duration: 1.5, Longest: 0.75,
			}},
			Slots: 16, InFlight: 1, Waiting: 2, HeldBack: 0.5,
		}},
		OVN:      &ovn.Status{Connected: true, Endpoint: "tcp:192.0.2.1:6641", Since: then(), Balancers: 1, Rows: 2},
		Handover: handover.Status{Waiting: 1, Since: then()},
		Drifts: []reconcile.DriftStatus{{
			Found: then(), Kind: drivers.KindPort, ID: "1", Of: "Pod shop/web-0", What: "is gone",
		}},
		Objects: []reconcile.ObjectStatus{goldenObject()},
	}
}

func goldenDescriptions() daemon.Descriptions {
	return daemon.Descriptions{
		FormatVersion: formatVersion, Version: "1.0.0", Cluster: "c1", Objects: []reconcile.Description{{
			ObjectStatus: goldenObject(),
			Kubernetes: &reconcile.Carried{
				Annotations: map[string]string{"kuryr.org/neutron-port": `{"id":"1"}`}, Addresses: []string{"203.0.113.7"},
			},
			Needs: []reconcile.NeedStatus{{Watch: "nodes", Name: "node-1", State: "present", Objects: 1}},
			Wants: []reconcile.WantStatus{{Kind: "port", Role: "port"}},
			Reconciles: []reconcile.Reconciled{{
				Ended: then(), Outcome: state.Failing, Seconds: 1.25, TranslateSeconds: 0.25, PlanSeconds: 0.125,
				ApplySeconds: 0.5, WriteBackSeconds: 0.375, Steps: 1, Why: "create port: 503 Service Unavailable",
			}},
			Events: []reconcile.Told{{Time: then(), Type: "Warning", Reason: "RavenCannotApply", Message: "503"}},
		}},
	}
}

func goldenPlan() daemon.DryRun {
	return daemon.DryRun{
		Cluster: "c1", Project: "p1", Held: []reconcile.Guard{{Driver: "pod", Held: 30, Allowed: 20}},
		Unread: []daemon.Unread{{Object: "Deployment shop/web", Reason: "no enabled driver reads deployments.apps"}},
		Objects: []reconcile.Planned{{
			Driver: "pod", Object: "Pod shop/web-0", Waits: []string{"a"}, Writes: []string{"kuryr.org/neutron-port"}, Held: 1,
			Steps: []plan.Step{{
				Op: plan.Create, Kind: drivers.KindPort, Identity: plan.Identity{Name: "port"}, Reason: "it does not exist",
				Attrs: map[string]any{"network_id": drivers.Ref{Name: "network"}, "name": "web-0"},
				Waits: []plan.Wait{{Message: "the network"}},
			}},
		}},
		Unchanged: []string{"Node node-1"},
	}
}

func goldenExplanation() explanation {
	return explanation{
		FormatVersion: formatVersion, Pod: "shop/web", Cluster: "c1", Ingress: []string{"shop/web"}, Egress: []string{},
		Groups: []string{"shop-web"}, Notes: []string{"a note"}, Compared: 2,
		Connections: []explained{{From: "shop/cart", To: "shop/web", Cases: []semantics.Case{{
			Ports: []string{"80/tcp"}, Addresses: []string{"192.168.4.2 to 192.168.4.3"}, Allowed: true, Differ: true,
			Sides: []semantics.Side{{
				Pod: "shop/web", Direction: "ingress", Allowed: true, IsolatedBy: []string{"shop/web"},
				Rules: []string{"shop/web ingress[0]"}, Port: "p1", Programs: true, Advice: "do something",
				Passing: []semantics.Passing{{Group: "shop-web", ID: "g1", Rule: "r1"}},
			}},
		}}}},
	}
}

// The documents of all commands are as they were: another key, or a key that is gone, is a change for who reads them.
func TestDocumentsAreAsTheyWere(t *testing.T) {
	planned := func() any {
		var out bytes.Buffer
		_ = finishPlan(streams{out: &out, err: io.Discard}, goldenPlan(), "json") // its status is not what this is about
		return out.String()
	}
	for name, document := range map[string]any{
		"status": goldenReport(), "describe": goldenDescriptions(), "plan": planned(),
		"policy-explain": goldenExplanation(),
		"translate": translationDocument{
			FormatVersion: formatVersion, Unread: goldenPlan().Unread, Objects: []translated{{
				Object: "Pod shop/web-0", Driver: "pod", Set: map[string]any{"resources": []any{}},
				UndecidedBecause: []string{"the files lack nodes node-1"}, Error: "none",
			}},
		},
	} {
		got, printed := document.(string)
		if !printed {
			var out strings.Builder
			if err := structured(&out, "json", document); err != nil {
				t.Fatal(err)
			}
			got = out.String()
		}
		path := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("raven %s -o json is another; raise formatVersion if a key is gone or means something else:\n%s", name,
				diff)
		}
	}
}

// Every key begins with a small letter and has no underscore, and no time goes without its unit.
func TestKeysOfDocuments(t *testing.T) {
	key := regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
	seen := map[reflect.Type]bool{}
	var look func(at string, of reflect.Type)
	look = func(at string, of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			look(at, of.Elem())
			return
		case reflect.Struct:
		default:
			if of == reflect.TypeFor[time.Duration]() {
				t.Errorf("%s is a duration without a unit: give seconds, in a key that ends in Seconds", at)
			}
			return
		}
		if of == reflect.TypeFor[time.Time]() || seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
			case f.Anonymous && name == "":
				look(at, f.Type)
			case !key.MatchString(name):
				t.Errorf("%s.%s has the key %q", at, f.Name, name)
			default:
				look(at+"."+name, f.Type)
			}
		}
	}
	look("status", reflect.TypeFor[daemon.Report]())
	look("describe", reflect.TypeFor[daemon.Descriptions]())
	look("plan", reflect.TypeFor[planDocument]())
	look("translate", reflect.TypeFor[translationDocument]())
	look("policy explain", reflect.TypeFor[explanation]())
	if len(seen) < 20 {
		t.Errorf("it looked at %d types only", len(seen))
	}
}

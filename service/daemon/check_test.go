// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	simkube "github.com/kuryr/raven/test/sim/kube"
)

// found says whether a check has a finding of a level that says all of these.
func found(c *Check, level Level, says ...string) bool {
	return slices.ContainsFunc(c.Findings, func(f Finding) bool {
		return f.Level == level && !slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(f.Message, s) })
	})
}

func wantFound(t *testing.T, c *Check, level Level, says ...string) {
	t.Helper()
	if !found(c, level, says...) {
		t.Errorf("there is no %s that says %q in:\n%v", level, says, c.Findings)
	}
}

func TestCheckOfAGoodConfiguration(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.loader(nil).Check(t.Context())
	if c.Errors() > 0 {
		t.Errorf("there are errors: %v", c.Findings)
	}
	for _, says := range []string{
		"values: read from", "driver configmaps", "driver serviceaccounts", "cluster: ", "cloud",
	} {
		wantFound(t, c, LevelOK, says)
	}
}

// TestCheckOfOVNThatIsNotConfigured: a driver of OVN load balancers without a database to keep them in is told of.
func TestCheckOfOVNThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind drivers.Kind
		told bool
	}{"kubeproxy": {drivers.KindOVNLoadBalancer, true}, "pod": {drivers.KindPort, false}} {
		check := &Check{Settings: &Settings{Programs: []Program{
			{Name: name, Info: drivers.Info{Name: name, Kinds: []drivers.Kind{c.kind}}},
		}}}
		check.noNorthbound()
		if told := found(check, LevelWarn, "driver "+name, "[ovn] nb_connection", "set it"); told != c.told {
			t.Errorf("%s: told %v: %v", name, told, check.Findings)
		}
	}
}

// Whatever is wrong with one stage, the others are checked, and nothing is concluded from what is at fault.
func TestCheckTellsAllStagesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.set("raven", "sweep_limit", "none") // a value of the core
	r.set("DEFAULT", "debg", "true")      // an unknown option
	r.set("raven", "drivers", "configmaps,serviceaccounts,crow,Owl,configmaps")
	r.set(DriverGroup("serviceaccounts"), "sha256", "12") // a section
	r.set("kubernetes", "kubeconfig", "/nowhere/kubeconfig")
	r.set("neutron", "cloud", "nowhere")
	r.set("ovn", "nb_connection", "carrier:pigeon")
	c := r.loader(nil).Check(t.Context())
	for _, says := range [][]string{
		{"[raven] sweep_limit", "kuryr.conf:"},
		{"[driver:serviceaccounts] sha256"},
		{"driver(crow)"},
		{`"Owl" does not match`},
		{`names "configmaps" twice`},
		{"/nowhere/kubeconfig"},
		{`cloud "nowhere"`},
		{"pigeon"},
	} {
		wantFound(t, c, LevelError, says...)
	}
	wantFound(t, c, LevelWarn, "debg", "did you mean debug?")
	wantFound(t, c, LevelOK, "driver configmaps: version")
	wantFound(t, c, LevelOK, "options of driver configmaps; it watches configmaps")
	if found(c, LevelOK, "values: ") {
		t.Error("values are said to be in order")
	}
	strict := r.loader(nil)
	sources, _ := strict.Sources()
	sources.Strict = true
	strict.Sources = func() (config.Sources, error) { return sources, nil }
	r.set("raven", "drivers", configmaps)
	wantFound(t, strict.Check(t.Context()), LevelError, "debg", "did you mean debug?")
}

func TestCheckOnline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rights := []authorizationv1.ResourceAttributes{
		{Verb: "list", Resource: "pods"},
		{Verb: "patch", Resource: "services", Subresource: "status"},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "raven"},
	}
	c := r.loader(nil).Check(t.Context())
	c.Online(t.Context(), rights)
	if c.Errors() > 0 {
		t.Errorf("there are errors: %v", c.Findings)
	}
	for _, says := range []string{"cluster at ", "all 3 permissions", "logged in", "networking service at", "quota: "} {
		wantFound(t, c, LevelOK, says)
	}

	r.kube.SetDeny(simkube.Deny{Verbs: []string{"patch"}, Resources: []string{"services/status"}})
	connected, err := OpenCloud(t.Context(), c.Settings.Values, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.cloud.SetQuota(connected.ProjectID(), "port", 0)
	connected.Close()
	r.set("ovn", "nb_connection", "unix:/nowhere/ovnnb.sock")
	r.set("ovn", "connection_timeout", "1")
	c = r.loader(nil).Check(t.Context())
	c.Online(t.Context(), rights)
	wantFound(t, c, LevelError, "may not patch services/status in all namespaces", "raven driver rbac")
	wantFound(t, c, LevelError, "quota exhausted: port 0 of 0")
	wantFound(t, c, LevelError, "OVN's northbound database", "check [ovn]")

	r.kube.Close()
	r.cloud.Close()
	c = r.loader(nil).Check(t.Context())
	c.Online(t.Context(), rights)
	wantFound(t, c, LevelError, "reading the cluster's id")
	wantFound(t, c, LevelError, "check [neutron]")
}

func TestCheckOnlineOfTheExternalNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.loader(nil).Check(t.Context())
	connected, err := OpenCloud(t.Context(), c.Settings.Values, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	external := 0
	for _, n := range r.cloud.Networks() {
		id, _ := n["id"].(string)
		want, _ := n["router:external"].(bool)
		if want {
			external++
		}
		if have, err := connected.Neutron.External(t.Context(), id); err != nil || have != want {
			t.Errorf("network %v is external: %t, %v; want %t", n["name"], have, err, want)
		}
	}
	if external == 0 {
		t.Error("the cloud has no external network")
	}
}

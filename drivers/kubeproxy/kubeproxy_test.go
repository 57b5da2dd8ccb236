// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/lbaas"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/plugins/sdktest"
)

func translate(t *testing.T, d drivers.Driver, watch, raw string) (drivers.Set, error) {
	t.Helper()
	return d.Translate(t.Context(), drivers.Object{Watch: watch, Raw: json.RawMessage(raw)}, drivers.NewNeeds(nil))
}

// Two drivers may declare one option only if they declare it alike, and an operator who changes lbaas for kubeproxy
// changes no option.
func TestOptionsAgreeWithOthers(t *testing.T) {
	theirs := map[[2]string]drivers.Option{}
	for _, d := range []drivers.Driver{namespace.New(), pod.New(), lbaas.New()} {
		for _, o := range d.Info().Options {
			theirs[[2]string{o.Group, o.Name}] = o
		}
	}
	for _, o := range New().Info().Options {
		other, ok := theirs[[2]string{o.Group, o.Name}]
		if !ok {
			t.Errorf("[%s] %s is an option of this driver alone", o.Group, o.Name)
			continue
		}
		if diff := cmp.Diff(other, o); diff != "" {
			t.Errorf("[%s] %s: %s", o.Group, o.Name, diff)
		}
	}
}

func TestConfigureRefuses(t *testing.T) {
	for _, tc := range []struct{ group, name, value string }{
		{conf.SubnetGroup, conf.OptTopology, "mesh"},
		{conf.SubnetGroup, conf.OptFamilies, "ipv5"},
	} {
		d := New()
		values, err := drivers.DefaultValues(d.Info().Options, nil)
		if err != nil {
			t.Fatal(err)
		}
		values[tc.group][tc.name] = tc.value
		err = d.Configure(t.Context(), values)
		var refused *drivers.OptionError
		if !errors.As(err, &refused) || refused.Name != tc.name || !strings.Contains(refused.Message, tc.value) {
			t.Errorf("%s = %s: error %v", tc.name, tc.value, err)
		}
	}
}

func TestTranslateBeforeConfigure(t *testing.T) {
	_, err := translate(t, New(), namespacesWatch, `{"metadata":{"name":"shop"}}`)
	if !errors.As(err, new(*conf.UnconfiguredError)) {
		t.Errorf("error %v", err)
	}
}

func TestTranslateUnreadable(t *testing.T) {
	d := sdktest.Configured(t, New(), nil)
	for _, tc := range []struct{ watch, raw string }{
		{"services", `{}`},
		{"services", `[]`},
		{"services", `{"metadata":{"name":"a","namespace":"b"},"spec":{"ports":1}}`},
		{namespacesWatch, `{}`},
		{namespacesWatch, `[]`},
	} {
		if set, err := translate(t, d, tc.watch, tc.raw); err == nil {
			t.Errorf("%s %s: no error, %d resources", tc.watch, tc.raw, len(set.Resources))
		}
	}
}

// Namespaces that share a group must claim the very same one: claims that differ are a conflict.
func TestNamespacesAgreeOnTheGroup(t *testing.T) {
	group := func(d drivers.Driver, raw string) drivers.Resource {
		set, err := translate(t, d, namespacesWatch, raw)
		if err != nil || len(set.Resources) != 1 {
			t.Fatalf("%v, %d resources", err, len(set.Resources))
		}
		return set.Resources[0]
	}
	const shop, bank = `{"metadata":{"name":"shop"}}`, `{"metadata":{"name":"bank"}}`
	shared := sdktest.Configured(t, New(), nil)
	if diff := cmp.Diff(group(shared, shop), group(shared, bank)); diff != "" {
		t.Error(diff)
	}
	dedicated := sdktest.Configured(t, New(),
		map[string]map[string]any{conf.SubnetGroup: {conf.OptTopology: conf.DedicatedTopology}})
	if r := group(dedicated, shop); r.Claim != "" {
		t.Errorf("claim %q, though namespaces are to stay apart", r.Claim)
	}
}

type golden struct {
	Undecided []string `json:"undecided"`
	Resources []struct {
		Kind     string         `json:"kind"`
		Name     string         `json:"name"`
		OnDelete string         `json:"onDelete"`
		Spec     map[string]any `json:"spec"`
	} `json:"resources"`
}

// floatings returns the floating IPs of a golden: what they are, but for where they lead, by logical name; nil for
// one that is undecided.
func floatings(t *testing.T, path string) map[string]map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := yaml.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for _, r := range g.Resources {
		if r.Kind == string(drivers.KindFloatingIP) {
			delete(r.Spec, "port_id")
			delete(r.Spec, "fixed_ip_address")
			r.Spec["on_delete"] = r.OnDelete
			found[r.Name] = r.Spec
		}
	}
	for _, name := range g.Undecided {
		if strings.HasPrefix(name, drivers.FloatingIPName("")) {
			found[name] = nil
		}
	}
	return found
}

// When an operator changes lbaas for kubeproxy or back, every floating IP has to stay: it has the same logical name
// and the same unchangeable attributes with both, or is left as it is.
func TestFloatingIPsSurviveAChangeOfTheDriver(t *testing.T) {
	const theirs = "../lbaas/testdata"
	entries, err := os.ReadDir(theirs)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, entry := range entries {
		ours := filepath.Join("testdata", entry.Name(), "want.yaml")
		if _, err := os.Stat(ours); err != nil {
			continue
		}
		a, b := floatings(t, filepath.Join(theirs, entry.Name(), "want.yaml")), floatings(t, ours)
		for name, spec := range a {
			compared++
			other, ok := b[name]
			if !ok {
				t.Errorf("%s: %s would be lost on the way from lbaas", entry.Name(), name)
			} else if diff := cmp.Diff(spec, other); diff != "" && other != nil && spec != nil {
				t.Errorf("%s: %s would be replaced: %s", entry.Name(), name, diff)
			}
		}
		for name := range b {
			if _, ok := a[name]; !ok {
				t.Errorf("%s: %s would be lost on the way to lbaas", entry.Name(), name)
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d floating IPs were compared", compared)
	}
}

// TestOlderCore: a core that cannot give clients on each chassis backends of their own is not asked to.
func TestOlderCore(t *testing.T) {
	d := sdktest.Configured(t, New(), nil)
	node := drivers.Object{Watch: nodesWatch, Raw: json.RawMessage(
		`{"metadata":{"name":"n1","annotations":{"node.kuryr.org/chassis-id":"c1"}}}`)}
	slice := drivers.Object{Watch: "endpointslices", Raw: json.RawMessage(`{"metadata":{"name":"web-1","namespace":"shop"},
		"addressType":"IPv4","ports":[{"port":80,"protocol":"TCP"}],
		"endpoints":[{"addresses":["10.0.0.5"],"nodeName":"n1","conditions":{"ready":true}}]}`)}
	of := drivers.Need{Watch: "endpointslices", Namespace: "shop", Selector: "kubernetes.io/service-name=web"}
	service := `{"metadata":{"name":"web","namespace":"shop","uid":"u"},"spec":{"clusterIP":"10.96.0.9",
		"selector":{"app":"web"},"ports":[{"port":80,"protocol":"TCP"}],"internalTrafficPolicy":"Local"}}`
	for _, able := range []bool{false, true} {
		capabilities := map[bool][]string{true: {drivers.ChassisBackends}}[able]
		d.(drivers.CoreAware).Core(capabilities)
		set, err := d.Translate(t.Context(), drivers.Object{Watch: "services", Raw: json.RawMessage(service)},
			drivers.NewNeeds(map[drivers.Need][]drivers.Object{of: {slice}, {Watch: nodesWatch}: {node}}))
		if err != nil || len(set.Resources) != 1 {
			t.Fatalf("%+v, %v", set, err)
		}
		vip := set.Resources[0].Spec.(drivers.OVNLoadBalancer).VIPs[0]
		if (len(vip.Chassis) == 1) != able || (len(vip.Backends) == 1) == able || (len(set.Diagnostics) == 0) != able {
			t.Errorf("able %v: %+v, %v", able, vip, set.Diagnostics)
		}
	}
}

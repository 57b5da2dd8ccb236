// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/namespace"
)

func configured(t *testing.T, groups ...string) drivers.Driver {
	t.Helper()
	d := New()
	err := d.Configure(t.Context(), drivers.Values{
		conf.SubnetGroup:   {conf.OptFamilies: conf.IPv4Only},
		conf.DefaultsGroup: {conf.OptSecurityGroups: groups},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func translate(t *testing.T, d drivers.Driver, raw string) (drivers.Set, error) {
	t.Helper()
	needs := drivers.NewNeeds(map[drivers.Need][]drivers.Object{{Watch: nodes, Name: "10.240.0.4"}: nil})
	return d.Translate(t.Context(), drivers.Object{Watch: pods, Raw: json.RawMessage(raw)}, needs)
}

// Two drivers may declare one option only if they declare it alike.
func TestOptionsAgreeWithNamespace(t *testing.T) {
	theirs := map[[2]string]drivers.Option{}
	for _, o := range namespace.New().Info().Options {
		theirs[[2]string{o.Group, o.Name}] = o
	}
	shared := 0
	for _, o := range New().Info().Options {
		other, ok := theirs[[2]string{o.Group, o.Name}]
		if !ok {
			continue
		}
		shared++
		if diff := cmp.Diff(other, o); diff != "" {
			t.Errorf("[%s] %s: %s", o.Group, o.Name, diff)
		}
	}
	if shared == 0 {
		t.Error("no option in common: ip_families has to be")
	}
}

func TestConfigureRefuses(t *testing.T) {
	err := New().Configure(t.Context(), drivers.Values{conf.SubnetGroup: {conf.OptFamilies: "ipv5"}})
	if err == nil || !strings.Contains(err.Error(), "[namespace_subnet] ip_families") ||
		!strings.Contains(err.Error(), "ipv5") {
		t.Errorf("error %v", err)
	}
}

func TestTranslateBeforeConfigure(t *testing.T) {
	_, err := translate(t, New(), `{"metadata":{"name":"a","namespace":"b"}}`)
	if !errors.As(err, new(*conf.UnconfiguredError)) {
		t.Errorf("error %v", err)
	}
}

func TestTranslateNotAPod(t *testing.T) {
	for _, raw := range []string{
		`{}`, `[]`, `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a","namespace":"b","labels":[]}}`,
	} {
		if _, err := translate(t, configured(t), raw); err == nil {
			t.Errorf("%s: no error", raw)
		}
	}
}

// A label that is no UUID must never open a port to another group: there is no opinion, and the message names the
// label.
func TestBadLabel(t *testing.T) {
	for _, label := range []string{
		"web", "", "d42b0bb2dc4e11e58c7942010af00003", "d42b0bb2-dc4e-11e5-8c79-42010af0000g",
		"d42b0bb2-dc4e-11e5-8c79-42010af000030", "d42b0bb2-dc4e-11e5-8c7-942010af00003-",
	} {
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"name": "a", "namespace": "b", "labels": map[string]string{SecurityGroupLabel: label},
		}})
		if err != nil {
			t.Fatal(err)
		}
		set, err := translate(t, configured(t), string(raw))
		if err == nil || len(set.Resources) > 0 {
			t.Errorf("label %q: %d resources, error %v", label, len(set.Resources), err)
			continue
		}
		if !strings.Contains(err.Error(), SecurityGroupLabel) || !strings.Contains(err.Error(), `"`+label+`"`) {
			t.Errorf("error %q names neither the label nor its value", err)
		}
	}
}

// A label that a completed or host-network pod has does not matter: it has no port.
func TestBadLabelWithoutPort(t *testing.T) {
	for _, raw := range []string{
		`{"metadata":{"name":"a","namespace":"b","labels":{"kuryr.org/neutron-security-group":"x"}},"status":{"phase":"Failed"}}`,
		`{"metadata":{"name":"a","namespace":"b","labels":{"kuryr.org/neutron-security-group":"x"}},"spec":{"hostNetwork":true}}`,
	} {
		if set, err := translate(t, configured(t), raw); err != nil || len(set.Resources)+len(set.Outputs) > 0 {
			t.Errorf("%s: %d resources, error %v", raw, len(set.Resources), err)
		}
	}
}

// A group that is given twice is one group.
func TestRepeatedSecurityGroup(t *testing.T) {
	set, err := translate(t, configured(t, "web", "web"), `{"metadata":{"name":"a","namespace":"b"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Resources) != 2 {
		t.Errorf("%d resources, want a lookup and a port", len(set.Resources))
	}
}

// Which chassis a pod is on matters once it is scheduled and has a port: until then nothing is asked for.
func TestAsksForItsNodeOnly(t *testing.T) {
	for _, tc := range []struct {
		name, raw string
		want      []drivers.Need
	}{
		{"not scheduled", `{"metadata":{"name":"a","namespace":"b"}}`, nil},
		{
			"scheduled", `{"metadata":{"name":"a","namespace":"b"},"spec":{"nodeName":"n"}}`,
			[]drivers.Need{{Watch: nodes, Name: "n"}},
		},
		{
			"on its host's network", `{"metadata":{"name":"a","namespace":"b"},"spec":{"nodeName":"n","hostNetwork":true}}`,
			nil,
		},
		{
			"completed", `{"metadata":{"name":"a","namespace":"b"},"spec":{"nodeName":"n"},"status":{"phase":"Failed"}}`, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			needs := drivers.NewNeeds(nil)
			object := drivers.Object{Watch: pods, Raw: json.RawMessage(tc.raw)}
			if _, err := configured(t).Translate(t.Context(), object, needs); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, needs.Asked()); diff != "" || needs.Open() != (len(tc.want) > 0) {
				t.Errorf("open %t: %s", needs.Open(), diff)
			}
		})
	}
}

func TestName(t *testing.T) {
	if got := []rune(*name(strings.Repeat("ä", 300))); len(got) != 255 {
		t.Errorf("%d characters", len(got))
	}
}

// A whole object of Kubernetes 1.2, as `raven translate` may hand it over untrimmed: an annotation's value is an
// object.
func TestOldObjectUntrimmed(t *testing.T) {
	set, err := translate(t, configured(t),
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"my-nginx-y67ky","generateName":"my-nginx-",
		"namespace":"default","selfLink":"/api/v1/namespaces/default/pods/my-nginx-y67ky",
		"uid":"d42b0bb2-dc4e-11e5-8c79-42010af00003",
		"annotations":{"kubernetes.io/created-by":{"kind":"SerializedReference","apiVersion":"v1"}}},
		"spec":{"nodeName":"10.240.0.4"},"status":{"phase":"Pending","conditions":[{"lastProbeTime":null}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	if port, ok := set.Resources[0].Spec.(drivers.Port); !ok || *port.HostID != "10.240.0.4" {
		t.Errorf("got %+v", set.Resources[0])
	}
}

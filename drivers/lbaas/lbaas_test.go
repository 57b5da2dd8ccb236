// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/services"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/plugins/sdktest"
)

// settled translates a Service in a cluster that holds nothing else.
func settled(t *testing.T, d drivers.Driver, raw string) (drivers.Set, error) {
	t.Helper()
	answers := map[drivers.Need][]drivers.Object{}
	for {
		needs := drivers.NewNeeds(answers)
		set, err := d.Translate(t.Context(), drivers.Object{Watch: "services", Raw: json.RawMessage(raw)}, needs)
		if !needs.Open() {
			return set, err
		}
		for _, need := range needs.Asked() {
			answers[need] = nil
		}
	}
}

const web = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"clusterIP":"10.96.0.9","ports":[{"port":80}]}}`

// Two drivers may declare one option only if they declare it alike.
func TestOptionsAgreeWithOthers(t *testing.T) {
	theirs := map[[2]string]drivers.Option{}
	for _, o := range append(namespace.New().Info().Options, pod.New().Info().Options...) {
		theirs[[2]string{o.Group, o.Name}] = o
	}
	shared := 0
	for _, o := range New().Info().Options {
		if other, ok := theirs[[2]string{o.Group, o.Name}]; ok {
			shared++
			if diff := cmp.Diff(other, o); diff != "" {
				t.Errorf("[%s] %s: %s", o.Group, o.Name, diff)
			}
		}
	}
	if shared != len(services.SharedOptions()) {
		t.Errorf("%d options in common, want %d", shared, len(services.SharedOptions()))
	}
}

func TestConfigureRefuses(t *testing.T) {
	for _, tc := range []struct{ group, name, value string }{
		{services.OctaviaGroup, optMemberMode, "L4"},
		{services.OctaviaGroup, optAlgorithm, "RANDOM"},
		{services.OctaviaGroup, optDualStack, "both"},
		{conf.SubnetGroup, conf.OptFamilies, "ipv5"},
		{services.OctaviaGroup, optProvider, "a/b"},
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
	if _, err := settled(t, New(), web); !errors.As(err, new(*conf.UnconfiguredError)) {
		t.Errorf("error %v", err)
	}
}

func TestTranslateNotAService(t *testing.T) {
	d := sdktest.Configured(t, New(), nil)
	for _, raw := range []string{
		`{}`, `[]`, `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a","namespace":"b"},"spec":{"ports":1}}`,
		`{"metadata":{"name":"a","namespace":"b"},"spec":{"clusterIP":"x","ports":[{"port":80}]}}`,
	} {
		if set, err := settled(t, d, raw); err == nil {
			t.Errorf("%s: no error, %d resources", raw, len(set.Resources))
		}
	}
}

// Every annotation that the documents name must come through the watch, and no other may: their changes would wake
// Services.
func TestWatchShowsAnnotations(t *testing.T) {
	watch := New().Watches()[0]
	given := map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "x"}
	for _, key := range services.Annotations() {
		given[key] = "x"
	}
	object, err := watch.Object(map[string]any{
		"metadata": map[string]any{"name": "a", "namespace": "b", "annotations": given},
	})
	if err != nil {
		t.Fatal(err)
	}
	var kept struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := object.Into(&kept); err != nil {
		t.Fatal(err)
	}
	delete(given, "kubectl.kubernetes.io/last-applied-configuration")
	if len(kept.Metadata.Annotations) != len(given) {
		t.Errorf("%d annotations come through, want %d", len(kept.Metadata.Annotations), len(given))
	}
}

// Nothing that the driver writes may be among what it reads of every Service: it would wake itself.
func TestReadsNothingThatItWrites(t *testing.T) {
	fields := strings.Join(New().Watches()[0].Fields, " ")
	for _, key := range New().Info().Annotations {
		if strings.Contains(fields, "'"+key+"'") {
			t.Errorf("%s is read and written", key)
		}
	}
}

// What was written is asked for only where a value cannot be read.
func TestAsksForWhatIsWritten(t *testing.T) {
	d := sdktest.Configured(t, New(), nil)
	for value, want := range map[string]bool{"ROUND_ROBIN": false, "FASTEST": true} {
		raw := strings.Replace(web, `"namespace"`, `"annotations":{"`+services.LBMethod+`":"`+value+`"},"namespace"`, 1)
		needs := drivers.NewNeeds(nil)
		if _, err := d.Translate(t.Context(), drivers.Object{Watch: "services", Raw: json.RawMessage(raw)},
			needs); err != nil {
			t.Fatal(err)
		}
		asked := slices.ContainsFunc(needs.Asked(), func(n drivers.Need) bool { return n.Watch == "services-written" })
		if asked != want {
			t.Errorf("%s: asked %v, want %v", value, asked, want)
		}
	}
}

// What a Service is changed to and back again must leave the same Set, whatever was between.
func TestTypesThereAndBack(t *testing.T) {
	d := sdktest.Configured(t, New(), map[string]map[string]any{conf.DefaultsGroup: {conf.OptExternalNetwork: "public"}})
	types := []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}
	first := map[string]drivers.Set{}
	for _, typ := range append(types, types...) {
		set, err := settled(t, d, strings.Replace(web, `"spec":{`, `"spec":{"type":"`+typ+`",`, 1))
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := first[typ]; ok {
			if diff := cmp.Diff(before, set); diff != "" {
				t.Errorf("%s: %s", typ, diff)
			}
		}
		first[typ] = set
	}
	if n := len(first["ExternalName"].Resources); n != 0 {
		t.Errorf("ExternalName has %d resources", n)
	}
	if floating(first["LoadBalancer"]) != 1 || floating(first["ClusterIP"]) != 0 {
		t.Error("only type LoadBalancer has a floating IP")
	}
}

func floating(set drivers.Set) int {
	n := 0
	for _, r := range set.Resources {
		if r.Spec.Kind() == drivers.KindFloatingIP {
			n++
		}
	}
	return n
}

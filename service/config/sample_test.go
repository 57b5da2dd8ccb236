// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service/config"
)

var update = flag.Bool("update", false, "write the golden files")

func sampleOptions() []config.Option {
	raven, pod := "kuryr.raven", "driver pod"
	return []config.Option{
		{
			Group: "kubernetes", Name: "api_root", Default: "https://localhost:6443", Help: "Where the API server is.",
			Env: []string{"K8S_API"}, Declarer: raven,
		},
		{
			Group: "kubernetes", Name: "t", Type: config.Integer, Default: "3600", Min: new(0.0), Max: new(9999.0),
			Mutable: true, Help: "Help text.", Declarer: raven,
		},
		{
			Group: "kubernetes", Name: "deep", Type: config.Float, Default: "0.5", Advanced: true, Help: "Deep.",
			Declarer: raven,
		},
		{
			Group: "kubernetes", Name: "token_file",
			Help: "A file with a token. This help is long enough to be wrapped at seventy-nine columns, which is where " +
				"oslo-config-generator wraps, and goes on.\n\nA second paragraph:\n  indented", Declarer: raven,
		},
		{Name: "debug", Type: config.Boolean, Default: "False", Help: "Say more.", Declarer: raven},
		{Name: "empty", HasDefault: true, Help: "Empty.", Declarer: raven},
		{Name: "spaced", Default: " x ", Help: "Spaced.", Declarer: raven},
		{Name: "many", Type: config.Multi, Help: "Several lines.", Declarer: raven},
		{Name: "several", Type: config.Multi, Default: "one\ntwo", Help: "Several lines.", Declarer: raven},
		{Name: "host", SampleDefault: "node.example", Default: "here", Help: "Name.", Declarer: raven},
		{
			Group: "neutron", Name: "mode", Default: "a", Choices: []string{"a", "", "b"},
			ChoiceHelp: map[string]string{"a": "Alpha"}, Help: "Mode.", Declarer: pod,
		},
		{
			Group: "neutron", Name: "old", DeprecatedForRemoval: true, DeprecatedSince: "2.0", Reason: "Nobody needs it.",
			Deprecated: []config.Name{{Group: "k8s"}, {Name: "older"}}, Help: "Old.", Declarer: pod,
		},
		{Group: "neutron", Name: "password", Secret: true, Help: "Password.", Declarer: "kuryr.raven"},
		{Group: "neutron", Name: "pool", Type: config.Integer, Default: "0", NoEffect: "until pools come", Declarer: pod},
		{Group: "neutron", Name: "port", Type: config.Port, Default: "8082", Help: "Port.", Declarer: pod},
		{Group: "neutron", Name: "tags", Type: config.List, Default: "a,b", Help: "Tags.", Declarer: pod},
		{Group: "neutron", Name: "map", Type: config.Dict, Help: "Map.", Declarer: pod},
		{Group: "neutron", Name: "wait", Type: config.Duration, Default: "30s", Help: "Wait.", Declarer: pod},
	}
}

func TestSample(t *testing.T) {
	var got bytes.Buffer
	if err := config.Sample(&got, sampleOptions(), config.Group{Name: "kubernetes", Help: "group help"}); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/sample.conf", got.String())
}

// golden compares a text with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
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
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSampleCanBeLoaded(t *testing.T) {
	values, warnings, err := config.Load(config.Sources{Files: []string{"testdata/sample.conf"}, Strict: true},
		sampleOptions())
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %v", err, warnings)
	}
	if origin := values.Origin("kubernetes", "t"); origin.Source != config.FromDefault {
		t.Errorf("an untouched sample sets something: %s", origin)
	}
}

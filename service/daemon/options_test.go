// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
)

// A driver's options of every type are read by the rules of kuryr.conf, and handed over as the Go types that drivers
// know.
func TestOptionsOfADriver(t *testing.T) {
	t.Parallel()
	declare := []drivers.Option{
		{Name: "text", Type: drivers.StringOption, Pattern: "^[a-z]+$"},
		{Name: "port", Type: drivers.PortOption},
		{Name: "time", Type: drivers.DurationOption, Max: new(60.0)},
		{Name: "lines", Type: drivers.MultiOption},
		{Name: "ip", Type: drivers.IPOption, IPVersion: 4},
		{Name: "ranges", Type: drivers.ListOption, Item: drivers.CIDROption},
		{Name: "uri", Type: drivers.URIOption, Schemes: []string{"https"}},
		{Name: "name", Type: drivers.HostnameOption},
		{Name: "address", Type: drivers.HostAddressOption},
		{Name: "level", Type: drivers.StringOption, Choices: []string{"High", "low"}, IgnoreCase: true},
	}
	p := Program{Name: "crow"}
	var options []config.Option
	for _, o := range declare {
		o.Group = "crow"
		p.Info.Options = append(p.Info.Options, o)
		options = append(options, driverOption("crow", o))
	}
	load := func(texts map[string][]string) (*config.Values, error) {
		args := map[config.Name][]string{}
		for name, text := range texts {
			args[config.Name{Group: "crow", Name: name}] = text
		}
		values, _, err := config.Load(config.Sources{Args: args}, options)
		return values, err
	}
	values, err := load(map[string][]string{
		"text": {"abc"}, "port": {"80"}, "time": {"1500ms"}, "lines": {"a,b", "c"}, "ip": {"192.0.2.1"},
		"ranges": {"10.0.0.0/8,fd00::/64"},
		"uri":    {"https://x"}, "name": {"crow.example.org"}, "address": {"192.0.2.1"}, "level": {"HIGH"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := drivers.Values{"crow": {
		"text": "abc", "port": int64(80), "time": 1.5, "lines": []string{"a,b", "c"}, "ip": "192.0.2.1",
		"ranges": []string{"10.0.0.0/8", "fd00::/64"},
		"uri":    "https://x", "name": "crow.example.org", "address": "192.0.2.1", "level": "High",
	}}
	if diff := cmp.Diff(want, (&Settings{Values: values}).valuesFor(p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"text": "ABC", "port": "65536", "time": "61", "ip": "fd00::1", "ranges": "10.0.0.1/8", "uri": "http://x",
		"name": "a_b", "address": "a b", "level": "mid",
	} {
		if _, err := load(map[string][]string{name: {text}}); err == nil || !strings.Contains(err.Error(), "[crow] "+name) {
			t.Errorf("%s = %s: %v", name, text, err)
		}
	}
}

// What cannot be is refused when the file is read, with file and line, and not when it is used.
func TestOptionsOfTheCoreAreTyped(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kuryr.conf")
	options := append(Options(), authorityOptions([]string{"crow"})...)
	for text, want := range map[string]string{
		"[kubernetes]\napi_root = localhost:6443":           ":2: [kubernetes] api_root: ",
		"[kubernetes]\nlease_name = My Lease":               ":2: [kubernetes] lease_name: ",
		"[neutron]\nauth_url = keystone/v3":                 ":2: [neutron] auth_url: ",
		"[neutron]\n\nendpoint_override = ftp://neutron":    ":3: [neutron] endpoint_override: ",
		"[neutron]\nvalid_interfaces = internal,pubic":      ":2: [neutron] valid_interfaces: ",
		"[raven]\ndrivers = namespace,Pod":                  ":2: [raven] drivers: ",
		"[driver:crow]\nsha256 = abc":                       ":2: [driver:crow] sha256: ",
		"[neutron]\nvalid_interfaces = internalURL, public": "",
		"[neutron]\nauth_url = http://[::1]:5000/v3":        "",
	} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := config.Load(config.Sources{Files: []string{path}}, options)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), path+want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

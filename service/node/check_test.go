// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/config"
)

// checked is what Check finds, by what it is about, with options of [node] that are other than the rig's.
func (r *rig) checked(change map[string]string) map[string]Finding {
	r.Helper()
	sources := config.Sources{Args: map[config.Name][]string{}}
	set := func(group, name, value string) { sources.Args[config.Name{Group: group, Name: name}] = []string{value} }
	set("kubernetes", "api_root", r.api.URL())
	for name, value := range map[string]string{
		"node_name": nodeName, "ovs_connection": r.config.OVS, "socket": r.config.Socket, "cni_plugin": r.config.Plugin,
		"cni_bin_dir": r.config.BinDir, "cni_chain": `[{"type":"raven-cni"}]`,
	} {
		set(optionGroup, name, value)
	}
	for name, value := range change {
		set(optionGroup, name, value)
	}
	values, _, err := config.Load(sources, allOptions())
	r.must(err)
	findings, err := Check(r.Context(), values, "test")
	r.must(err)
	all := map[string]Finding{}
	for _, f := range findings {
		if all[f.What] = f; (f.Found == "") == (f.Lack == "") {
			r.Errorf("finding %+v", f)
		}
	}
	return all
}

// lacks fails the test unless a finding says so.
func (r *rig) lacks(all map[string]Finding, what, says string) {
	r.Helper()
	if f := all[what]; !strings.Contains(f.Lack, says) {
		r.Errorf("%s: %+v, want %q", what, f, says)
	}
}

// TestNodeCheck: what a node lacks is named, with what to do; what it has is not.
func TestNodeCheck(t *testing.T) {
	r := started(t)
	good := r.checked(nil)
	for _, what := range []string{
		"Open vSwitch", "bridge", "chassis id", "chassis name", "API server", "plugin", "daemon",
	} {
		if f := good[what]; f.Lack != "" || f.Found == "" {
			t.Errorf("%s: %+v", what, f)
		}
	}
	r.lacks(good, "tunnels", "ovn-encap-type")
	r.lacks(good, "tunnel address", "ovn-encap-ip")
	r.lacks(good, "other plugins", "loopback")
	r.lacks(good, "node interface", "driver node")
	r.lacks(r.checked(map[string]string{"bridge": "br-none"}), "bridge", "br-none")
	bad := r.checked(map[string]string{
		"node_name": "nobody", "ovs_connection": "unix:/nowhere", "cni_plugin": "/nowhere", "socket": "/nowhere/s",
	})
	r.lacks(bad, "Open vSwitch", "/nowhere")
	r.lacks(bad, "API server", "nobody")
	r.lacks(bad, "plugin", "/nowhere")
	r.lacks(bad, "daemon", "/nowhere/s")
}

// TestNodeCheckPlugins: a chained plugin that is not there, or does not know a version of the specification, is named.
func TestNodeCheckPlugins(t *testing.T) {
	r := newRig(t)
	plugin := func(name, versions string) {
		t.Helper()
		r.must(os.MkdirAll(r.config.BinDir, 0o755))
		r.must(os.WriteFile(filepath.Join(r.config.BinDir, name), []byte("#!/bin/sh\necho '"+
			`{"cniVersion":"1.0.0","supportedVersions":[`+versions+`]}`+"'\n"), 0o755))
	}
	plugin("loopback", `"0.1.0"`) // runtimes ask it in a version of their own
	plugin("portmap", `"0.4.0","1.0.0"`)
	portmap := map[string]string{"cni_chain": `[{"type":"portmap"}]`}
	r.lacks(r.checked(portmap), "other plugins", "knows versions 0.4.0, 1.0.0 of the CNI specification, and not 1.1.0")
	portmap["cni_versions"] = "1.0.0"
	if f := r.checked(portmap)["other plugins"]; f.Found != "loopback, portmap" {
		t.Errorf("other plugins: %+v", f)
	}
	r.lacks(r.checked(map[string]string{"cni_chain": `[{"type":"none"}]`}), "other plugins", "has no none")
}

// TestNodeCheckForwarding: a host that forwards nothing is advised to.
func TestNodeCheckForwarding(t *testing.T) {
	needNetns(t)
	for value, says := range map[string]string{"0": "NodePorts", "1": ""} { // of this network namespace
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		f := checkForwarding()
		if (f.Lack == "") != (says == "") || !strings.Contains(f.Lack, says) || f.Advice != (says != "") {
			t.Errorf("net.ipv4.ip_forward = %s: %+v", value, f)
		}
	}
}

// TestEncapsulation: an address that no interface has, and an MTU that the tunnel's interface cannot carry.
func TestEncapsulation(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		address string
		mtu     int
		lack    string
	}{
		{"127.0.0.1", 0, ""},
		{"127.0.0.1", 1442, ""},
		{"127.0.0.1", 65500, "65558"},
		{"192.0.2.77", 1442, "no interface"},
		{"", 1442, "no address"},
		{"127.0.0.1,127.0.0.1", 1442, ""},
		{"127.0.0.1, 192.0.2.77", 1442, "192.0.2.77"},
		{"127.0.0.1,x", 1442, `"x" is no address`},
	} {
		f := checkEncap(test.address, test.mtu)
		if (f.Lack == "") != (test.lack == "") || !strings.Contains(f.Lack, test.lack) {
			t.Errorf("%s with MTU %d: %+v", test.address, test.mtu, f)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
)

// TestConfigRefused: what cannot be is said with the option's name.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	good := Config{Name: "n", Socket: "/s", ConfDir: "/etc/cni/net.d", ConfName: "10-raven.conflist"}
	if err := good.Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no name":                 {func(c *Config) { c.Name = "" }, "node_name"},
		"a relative socket":       {func(c *Config) { c.Socket = "s" }, "socket"},
		"a long socket":           {func(c *Config) { c.Socket = "/" + strings.Repeat("s", 200) }, "socket"},
		"a folder in the name":    {func(c *Config) { c.ConfName = "../x.conflist" }, "cni_conf_name"},
		"another kind of file":    {func(c *Config) { c.ConfName = "10-raven.conf" }, "must end in .conflist"},
		"no list of plugins":      {func(c *Config) { c.Chain = "{}" }, "cni_chain"},
		"a plugin without a type": {func(c *Config) { c.Chain = `[{"name":"x"}]` }, "cni_chain"},
	} {
		c := good
		test.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

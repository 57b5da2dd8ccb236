// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/watch"
)

const optionGroup = "node"

// The values of southbound_check.
const (
	checkReachable = "reachable"
	checkAlways    = "always"
	checkNever     = "never"
)

// PluginName is the name of the CNI plugin's program, and its type in a CNI configuration.
const PluginName = "raven-cni"

// Config is what a node's daemon needs.
type Config struct {
	// Name is the name of the Node that this machine is.
	Name string
	// OVS is the address of Open vSwitch's database, in OVSDB's notation; Bridge is the integration bridge.
	OVS, Bridge string
	// Interface is the name of the node's own interface; empty: it gets none.
	Interface string
	// Socket is the path of the socket that raven-cni asks.
	Socket string
	// ConfDir and ConfName say where the CNI configuration is written, BinDir where the plugin is installed; an empty
	// ConfDir or BinDir leaves that to others. Plugin is the program to install.
	ConfDir, ConfName, BinDir, Plugin string
	// Versions are those of the CNI specification that the configuration is for.
	Versions []string
	// Chain is a JSON list of further plugins of the CNI configuration.
	Chain string
	// AddTimeout bounds an ADD. Resync is the time between two looks at all interfaces.
	AddTimeout, Resync time.Duration
	// SouthboundCheck says whether the owner of a port is looked up in OVN's southbound database.
	SouthboundCheck string
	// Clients are the ways to the API server. ListOnly fills caches by lists, never by streaming lists.
	Clients  watch.Clients
	ListOnly bool
	Logger   *slog.Logger
	Clock    clock.Clock
}

// Options declares [node].
func Options() []config.Option {
	options := slices.Concat(placeOptions(), cniOptions(), workOptions())
	for i := range options {
		options[i].Group, options[i].Declarer = optionGroup, "kuryr.raven"
	}
	return options
}

// placeOptions say which node this is, and where its switch is.
func placeOptions() []config.Option {
	return []config.Option{
		{
			Name: "node_name", Env: []string{"NODE_NAME"}, SampleDefault: "the machine's host name, in lower case",
			Help: "The name of the Node object that this machine is.",
		},
		{
			Name: "ovs_connection", Default: "unix:/var/run/openvswitch/db.sock", Pattern: `^(unix:/.+|tcp:.+:[0-9]+)$`,
			Help: "The database of this machine's Open vSwitch: unix:/path or tcp:address:port.",
		},
		{Name: "bridge", Default: "br-int", Help: "OVN's integration bridge, which ovn-controller makes."},
		{
			Name: "interface", Default: "raven-node0", HasDefault: true, MaxLength: 15,
			Help: "The name of the node's own interface in the pods' network, by which its kubelet and its host processes " +
				"reach pods. It needs the driver node in Raven. Empty: the node gets none.",
		},
	}
}

// cniOptions say how container runtimes call the plugin.
func cniOptions() []config.Option {
	return []config.Option{
		{
			Name: "socket", Default: cniapi.DefaultSocket,
			Help: "The path of the socket by which raven-cni asks the daemon. Only root may.",
		},
		{
			Name: "cni_conf_dir", Default: "/etc/cni/net.d", HasDefault: true,
			Help: "The folder of the container runtime's CNI configuration, which is written there once the daemon is ready. " +
				"Empty: it is not written.",
		},
		{
			Name: "cni_conf_name", Default: "10-raven.conflist",
			Help: "The name of that file, which ends in .conflist: runtimes take the first one in the order of names.",
		},
		{
			Name: "cni_bin_dir", Default: "/opt/cni/bin", HasDefault: true,
			Help: "The folder of the container runtime's CNI plugins, where raven-cni is installed; that of Debian's " +
				"containerd is /usr/lib/cni. Empty: it is not installed.",
		},
		{
			Name: "cni_plugin", SampleDefault: "raven-cni beside the raven program",
			Help: "The raven-cni program to install.",
		},
		{
			Name: "cni_chain", Default: `[{"type":"portmap","capabilities":{"portMappings":true}}]`, HasDefault: true,
			Help: "A JSON list of the plugins that are called after raven-cni, as they stand in the CNI configuration.",
		},
		{
			Name: "cni_versions", Type: config.List, Default: "1.0.0,1.1.0", Pattern: `^(0\.[34]\.[01]|1\.[01]\.0)$`,
			Advanced: true,
			Help: "The versions of the CNI specification that the configuration is written for: those that all plugins of " +
				"cni_chain know. Runtimes take the highest that they know themselves, old ones the first.",
		},
	}
}

// workOptions say how pods are plugged in.
func workOptions() []config.Option {
	least := func(f float64) *float64 { return &f }
	return []config.Option{
		{
			Name: "add_timeout", Type: config.Duration, Default: "90", Min: least(1),
			Help: "How long the plugging of a pod may take, in seconds, the wait for its port included. The kubelet tries " +
				"again afterwards; the error says what was waited for.",
		},
		{
			Name: "southbound_check", Default: checkReachable, Choices: []string{checkReachable, checkAlways, checkNever},
			ChoiceHelp: map[string]string{
				checkReachable: "Refuse ports whose device_id in OVN's southbound database is not the pod's UID, where the " +
					"database can be asked",
				checkAlways: "The same, and refuse to plug while the database cannot be asked",
				checkNever:  "Trust the annotations, which only Raven may write",
			},
			Help: "Whether a pod's port is looked up in OVN's southbound database before the pod is plugged into it.",
		},
		{
			Name: "resync_interval", Type: config.Duration, Default: "60", Min: least(1), Advanced: true,
			Help: "The time between two comparisons of all interfaces with the pods, in seconds.",
		},
	}
}

// FromConfig reads [node]. The caller adds Clients, Logger and Clock.
func FromConfig(v *config.Values) (Config, error) {
	text := func(name string) string { return v.String(optionGroup, name) }
	c := Config{
		Name: text("node_name"), OVS: text("ovs_connection"), Bridge: text("bridge"), Interface: text("interface"),
		Socket: text("socket"), ConfDir: text("cni_conf_dir"), ConfName: text("cni_conf_name"),
		BinDir: text("cni_bin_dir"), Plugin: text("cni_plugin"), Chain: text("cni_chain"),
		Versions:   v.List(optionGroup, "cni_versions"),
		AddTimeout: v.Duration(optionGroup, "add_timeout"), Resync: v.Duration(optionGroup, "resync_interval"),
		SouthboundCheck: text("southbound_check"),
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("[node] node_name is not set, and the machine has no host name: %w", err)
		}
		c.Name = strings.ToLower(host)
	}
	if c.Plugin == "" {
		own, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("[node] cni_plugin is not set, and the raven program cannot be found: %w", err)
		}
		if resolved, err := filepath.EvalSymlinks(own); err == nil {
			own = resolved
		}
		c.Plugin = filepath.Join(filepath.Dir(own), PluginName)
	}
	return c, c.Validate()
}

// Validate fills in defaults and says what cannot be.
func (c *Config) Validate() error {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.SouthboundCheck == "" {
		c.SouthboundCheck = checkReachable
	}
	if c.AddTimeout <= 0 {
		c.AddTimeout = 90 * time.Second
	}
	if len(c.Versions) == 0 {
		c.Versions = []string{"1.0.0", "1.1.0"}
	}
	if c.Resync <= 0 {
		c.Resync = time.Minute
	}
	switch {
	case c.Name == "":
		return errors.New("[node] node_name is empty")
	case !filepath.IsAbs(c.Socket):
		return fmt.Errorf("[node] socket = %q: it must begin with a slash", c.Socket)
	case len(c.Socket) > maxSocketPath:
		return fmt.Errorf("[node] socket = %q: a socket's path has at most %d bytes", c.Socket, maxSocketPath)
	case c.ConfDir != "" && (c.ConfName == "" || filepath.Base(c.ConfName) != c.ConfName):
		return fmt.Errorf("[node] cni_conf_name = %q: it must be the name of a file without a folder", c.ConfName)
	case c.ConfDir != "" && filepath.Ext(c.ConfName) != ".conflist":
		return fmt.Errorf("[node] cni_conf_name = %q: it must end in .conflist, since runtimes take a list of plugins from "+
			"no other file", c.ConfName)
	}
	if _, err := c.chain(); err != nil {
		return err
	}
	return nil
}

const maxSocketPath = 107

// chain returns the plugins that follow raven-cni in the CNI configuration.
func (c *Config) chain() ([]json.RawMessage, error) {
	if c.Chain == "" {
		return nil, nil
	}
	var plugins []json.RawMessage
	if err := json.Unmarshal([]byte(c.Chain), &plugins); err != nil {
		return nil, fmt.Errorf("[node] cni_chain is no JSON list: %w", err)
	}
	for _, plugin := range plugins {
		var named struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(plugin, &named); err != nil || named.Type == "" {
			return nil, fmt.Errorf("[node] cni_chain: %s has no type", short(string(plugin)))
		}
	}
	return plugins, nil
}

// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
)

// Authority is what `[driver:<name>]` says of one driver: which program it is and what it may do.
type Authority struct {
	command      []string
	SHA256       string
	allowWatches []string
	allowKinds   []string
	allowOutputs []string
	allowRoles   []string
	// allowContributions: nil where the operator says nothing.
	allowContributions []string
	allowRead          []string
	attach             string
}

// DriverGroup is the group of the options that say what a driver may do.
func DriverGroup(name string) string { return "driver:" + name }

// authorityOptions declare the section of each enabled driver.
func authorityOptions(names []string) []config.Option {
	var options []config.Option
	for _, name := range names {
		group := DriverGroup(name)
		options = append(options, config.Option{
			Group: group, Name: "command", Declarer: declarer,
			Help: "The driver's program and its arguments, separated by blanks, in place of the search for raven-driver-" +
				name + ".",
		}, config.Option{
			Group: group, Name: "sha256", Pattern: "^([0-9A-Fa-f]{64})?$", Declarer: declarer,
			Help: "The digest that the program must have, in hexadecimal. Another program is refused.",
		}, config.Option{
			Group: group, Name: "allow_watches", Type: config.List, Declarer: declarer,
			Help: "The resources that the driver may watch, as resource or resource.group, for example pods or " +
				"servicecidrs.networking.k8s.io. Unset: everything but Secrets, which must always be named.",
		}, config.Option{
			Group: group, Name: "allow_kinds", Type: config.List, Declarer: declarer,
			Help: "The kinds of resources that the driver may make, for example port. Unset: all that it declares.",
		}, config.Option{
			Group: group, Name: "allow_outputs", Type: config.List, Declarer: declarer,
			Help: "The annotations, labels and parts of the status that the driver may write on its objects, for example " +
				"example.org/address or loadBalancer. Unset: all that it declares but keys of kubernetes.io and k8s.io, which " +
				"must always be named.",
		}, config.Option{
			Group: group, Name: "allow_roles", Type: config.List, Declarer: declarer,
			Help: "The exclusive roles that the driver may hold, for example service-proxy. Unset: that of the driver of this " +
				"name that comes with Raven, no other.",
		}, config.Option{
			Group: group, Name: "allow_contributions", Type: config.List, Declarer: declarer,
			Help: "What the driver may add to resources of other drivers: security_groups and allowed_address_pairs of ports, " +
				"routes of routers, networks and routers of OVN's load balancers. Unset: all for the drivers that come with " +
				"Raven, nothing for others.",
		}, config.Option{
			Group: group, Name: "allow_read", Type: config.List, Declarer: declarer,
			Help: "Files and folders that the driver may read and execute, beside its program and what is below /usr and " +
				"/lib: for example a Python environment. Absolute paths.",
		}, config.Option{
			Group: group, Name: "attach", Declarer: declarer, Advanced: true, Env: []string{attachEnv(name)},
			Help: "The socket of this driver, started by hand with --debug, to attach to instead of starting one. Needs " +
				"[raven] allow_attach.",
		})
	}
	return options
}

func authorityOf(v *config.Values, name string) Authority {
	group := DriverGroup(name)
	return Authority{
		command: strings.Fields(v.String(group, "command")), SHA256: v.String(group, "sha256"),
		allowWatches: v.List(group, "allow_watches"), allowKinds: v.List(group, "allow_kinds"),
		allowOutputs: v.List(group, "allow_outputs"), allowRoles: v.List(group, "allow_roles"),
		allowContributions: v.List(group, "allow_contributions"),
		allowRead:          v.List(group, "allow_read"), attach: v.String(group, "attach"),
	}
}

func attachEnv(name string) string {
	return wire.AttachEnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// program returns where the driver's program is.
func (a Authority) program(name, pluginDir string) (path string, args []string, err error) {
	if len(a.command) == 0 {
		path, err = host.Discover(name, pluginDir)
		return path, nil, err
	}
	if !filepath.IsAbs(a.command[0]) {
		return "", nil, fmt.Errorf("[%s] command = %s: it must be an absolute path", DriverGroup(name), a.command[0])
	}
	return a.command[0], a.command[1:], nil
}

// checkKinds refuses a driver that may make what the operator does not allow.
func (a Authority) checkKinds(name string, info drivers.Info) error {
	for _, kind := range info.Kinds {
		if len(a.allowKinds) > 0 && !slices.Contains(a.allowKinds, string(kind)) {
			return fmt.Errorf("driver(%s): it makes resources of kind %s, which [%s] allow_kinds does not name", name, kind,
				DriverGroup(name))
		}
	}
	return nil
}

// ours are the drivers that come with Raven, with the exclusive role of each. They are known by name: what program a
// name stands for is the operator's word, see [raven] drivers, plugin_dir and [driver:NAME].
func ours() map[string]string {
	return map[string]string{
		"namespace": "", "pod": "", "node": "", "lbaas": drivers.ServiceProxy, "kubeproxy": drivers.ServiceProxy,
	}
}

// checkInfo refuses a driver that may make, write or hold what the operator does not allow.
func (a Authority) checkInfo(name string, info drivers.Info) error {
	if err := a.checkKinds(name, info); err != nil {
		return err
	}
	for _, key := range slices.Concat(info.Annotations, info.Labels, info.Status) {
		named := slices.Contains(a.allowOutputs, key)
		if !named && len(a.allowOutputs) > 0 {
			return fmt.Errorf("driver(%s): it writes %s, which [%s] allow_outputs does not name", name, key, DriverGroup(name))
		}
		if !named && kubernetesOwn(key) {
			return fmt.Errorf("driver(%s): it writes %s, a key of Kubernetes' own, which needs your consent: name it, and all "+
				"else that it writes, in [%s] allow_outputs", name, key, DriverGroup(name))
		}
	}
	role, known := ours()[name]
	if info.Role != "" && !slices.Contains(a.allowRoles, info.Role) &&
		(len(a.allowRoles) > 0 || !known || role != info.Role) {
		return fmt.Errorf("driver(%s): it holds the role %s, in which it takes the place of another driver: name it in "+
			"[%s] allow_roles if it is to",
			name, info.Role, DriverGroup(name))
	}
	return nil
}

// kubernetesOwn says whether a key means something to Kubernetes itself, such as pod-security.kubernetes.io/enforce.
func kubernetesOwn(key string) bool {
	domain, _, prefixed := strings.Cut(strings.ToLower(key), "/")
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if prefixed && (domain == own || strings.HasSuffix(domain, "."+own)) {
			return true
		}
	}
	return false
}

// Contributes lists what the driver may add to resources of others; all says that there is no bound.
func (a Authority) Contributes(name string) (attributes []string, all bool) {
	_, known := ours()[name]
	return a.allowContributions, known && a.allowContributions == nil
}

// contributions are those of all drivers that are bounded, by name.
func contributions(programs []Program) map[string][]string {
	bounds := map[string][]string{}
	for _, p := range programs {
		if attributes, all := p.Authority.Contributes(p.Name); !all {
			bounds[p.Name] = attributes
		}
	}
	return bounds
}

// checkWatches refuses a driver that wants to read what the operator does not allow.
func (a Authority) checkWatches(name string, watches []drivers.Watch) error {
	for _, w := range watches {
		resource := ResourceName(w.GVR)
		named := slices.Contains(a.allowWatches, resource)
		if !named && len(a.allowWatches) > 0 {
			return fmt.Errorf("driver(%s): it watches %s, which [%s] allow_watches does not name", name, resource,
				DriverGroup(name))
		}
		if !named && resource == "secrets" {
			return fmt.Errorf("driver(%s): it watches Secrets, which needs your consent: name secrets, and all else that it "+
				"watches, in [%s] allow_watches", name, DriverGroup(name))
		}
	}
	return nil
}

// ResourceName is how allow_watches names a resource: resource or resource.group.
func ResourceName(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return gvr.Resource
	}
	return gvr.Resource + "." + gvr.Group
}

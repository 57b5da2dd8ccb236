package main

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

// authority is what `[driver:<name>]` says of one driver: which program it is and what it may do.
type authority struct {
	command      []string
	sha256       string
	allowWatches []string
	allowKinds   []string
	allowRead    []string
	attach       string
}

func driverGroup(name string) string { return "driver:" + name }

// authorityOptions declare the section of each enabled driver.
func authorityOptions(names []string) []config.Option {
	var options []config.Option
	for _, name := range names {
		group := driverGroup(name)
		options = append(options, config.Option{
			Group: group, Name: "command", Declarer: declarer,
			Help: "The driver's program and its arguments, separated by blanks, in place of the search for raven-driver-" + name + ".",
		}, config.Option{
			Group: group, Name: "sha256", Pattern: "^([0-9A-Fa-f]{64})?$", Declarer: declarer,
			Help: "The digest that the program must have, in hexadecimal. Another program is refused.",
		}, config.Option{
			Group: group, Name: "allow_watches", Type: config.List, Declarer: declarer,
			Help: "The resources that the driver may watch, as resource or resource.group, for example pods or servicecidrs.networking.k8s.io. " +
				"Unset: everything but Secrets, which must always be named.",
		}, config.Option{
			Group: group, Name: "allow_kinds", Type: config.List, Declarer: declarer,
			Help: "The kinds of resources that the driver may make, for example port. Unset: all that it declares.",
		}, config.Option{
			Group: group, Name: "allow_read", Type: config.List, Declarer: declarer,
			Help: "Files and folders that the driver may read and execute, beside its program and what is below /usr and /lib: for example a " +
				"Python environment. Absolute paths.",
		}, config.Option{
			Group: group, Name: "attach", Declarer: declarer, Advanced: true, Env: []string{attachEnv(name)},
			Help: "The socket of this driver, started by hand with --debug, to attach to instead of starting one. Needs [raven] allow_attach.",
		})
	}
	return options
}

func authorityOf(v *config.Values, name string) authority {
	group := driverGroup(name)
	return authority{
		command: strings.Fields(v.String(group, "command")), sha256: v.String(group, "sha256"),
		allowWatches: v.List(group, "allow_watches"), allowKinds: v.List(group, "allow_kinds"),
		allowRead: v.List(group, "allow_read"), attach: v.String(group, "attach"),
	}
}

func attachEnv(name string) string {
	return wire.AttachEnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// program returns where the driver's program is.
func (a authority) program(name, pluginDir string) (path string, args []string, err error) {
	if len(a.command) == 0 {
		path, err = host.Discover(name, pluginDir)
		return path, nil, err
	}
	if !filepath.IsAbs(a.command[0]) {
		return "", nil, fmt.Errorf("[%s] command = %s: it must be an absolute path", driverGroup(name), a.command[0])
	}
	return a.command[0], a.command[1:], nil
}

// checkKinds refuses a driver that may make what the operator does not allow.
func (a authority) checkKinds(name string, info drivers.Info) error {
	for _, kind := range info.Kinds {
		if len(a.allowKinds) > 0 && !slices.Contains(a.allowKinds, string(kind)) {
			return fmt.Errorf("driver(%s): it makes resources of kind %s, which [%s] allow_kinds does not name", name, kind, driverGroup(name))
		}
	}
	return nil
}

// checkWatches refuses a driver that wants to read what the operator does not allow.
func (a authority) checkWatches(name string, watches []drivers.Watch) error {
	for _, w := range watches {
		resource := resourceName(w.GVR)
		named := slices.Contains(a.allowWatches, resource)
		if !named && len(a.allowWatches) > 0 {
			return fmt.Errorf("driver(%s): it watches %s, which [%s] allow_watches does not name", name, resource, driverGroup(name))
		}
		if !named && resource == "secrets" {
			return fmt.Errorf("driver(%s): it watches Secrets, which needs your consent: name secrets, and all else that it watches, in "+
				"[%s] allow_watches", name, driverGroup(name))
		}
	}
	return nil
}

func resourceName(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return gvr.Resource
	}
	return gvr.Resource + "." + gvr.Group
}

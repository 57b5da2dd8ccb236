// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/plan"
)

// driverName is what the name of a driver matches.
const driverName = "^[a-z0-9][a-z0-9-]{0,39}$"

// errNoName is in the error of a name that no driver can have.
var errNoName = errors.New("is no name of a driver")

// CheckName refuses what cannot be the name of a driver.
func CheckName(name string) error {
	if !regexp.MustCompile(driverName).MatchString(name) {
		return fmt.Errorf("[%s] drivers: %q %w: it has lower case letters, digits and dashes, at most 40", OptionGroup, name,
			errNoName)
	}
	if name == plan.Shared {
		return fmt.Errorf("[%s] drivers: %q is the owner of shared resources and cannot be a driver", OptionGroup, name)
	}
	return nil
}

// CheckDeclared refuses a driver whose options would read what is the core's: its groups, its former names, other
// options by substitution in a default, or the environment. Secrets stay in the core.
func CheckDeclared(name string, info drivers.Info) error {
	groups, former := coreNames()
	refuse := func(o drivers.Option, what string) error {
		return fmt.Errorf("driver(%s): its option [%s] %s %s", name, o.Group, o.Name, what)
	}
	for _, o := range info.Options {
		for _, n := range append([][2]string{{o.Group, o.Name}}, o.Deprecated...) {
			key := config.Option{Group: n[0], Name: n[1]}.Key()
			ours := groups[key.Group] || former[key] || strings.HasPrefix(key.Group, DriverGroup(""))
			if ours && !slices.Contains(formerlyOurs(), n) {
				return refuse(o, fmt.Sprintf("reads [%s] %s, which is Raven's own", n[0], n[1]))
			}
		}
		if strings.Contains(o.Default, "$") {
			return refuse(o, "has a default that refers to other options, which is not allowed")
		}
		for _, env := range o.Env {
			if !allowedEnv(name, env) {
				return refuse(o, fmt.Sprintf("reads the environment variable %s; allowed are names that begin with %s", env,
					envPrefix(name)))
			}
		}
	}
	return nil
}

// sharedGroup is the group of options on what is made, of the core and of drivers.
const sharedGroup = "neutron_defaults"

// coreNames lists the groups of the core's options, and the former names of these options.
func coreNames() (groups map[string]bool, former map[config.Name]bool) {
	groups, former = map[string]bool{}, map[config.Name]bool{}
	for _, o := range Options() {
		key := o.Key()
		if key.Group == sharedGroup {
			former[key] = true // the rest of the group is open to drivers
		} else {
			groups[key.Group] = true
		}
		for _, d := range o.Deprecated {
			if d.Group == "" {
				d.Group = o.Group
			}
			if d.Name == "" {
				d.Name = o.Name
			}
			former[config.Option{Group: d.Group, Name: d.Name}.Key()] = true
		}
	}
	return groups, former
}

// formerlyOurs lists options of the first Raven and of kuryr-kubernetes that stood in groups which are the core's now,
// and whose meaning is a driver's. No secret is among them.
func formerlyOurs() [][2]string {
	return [][2]string{{"raven", "lb_method"}, {"kubernetes", "endpoints_driver_octavia_provider"}}
}

// allowedEnv says whether a driver may read a variable: one with its own name in front, or one that operators of the
// first Raven know.
func allowedEnv(name, env string) bool {
	known := []string{"SUBNET_POOL", "SERVICE_CLUSTER_IP_RANGE", "FLANNEL_NET"}
	return slices.Contains(known, env) || strings.HasPrefix(env, envPrefix(name))
}

func envPrefix(name string) string {
	return "RAVEN_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_"
}

// checkSharedSecrets refuses two drivers that declare the same secret: each would read the other's.
func checkSharedSecrets(programs []Program) error {
	owners := map[config.Name]string{}
	for _, p := range programs {
		for _, o := range p.Info.Options {
			key := config.Option{Group: o.Group, Name: o.Name}.Key()
			other, taken := owners[key]
			if taken && o.Secret {
				return fmt.Errorf("driver(%s): its secret option %s is driver %s's too; a secret has one reader", p.Name, key,
					other)
			}
			owners[key] = p.Name
		}
	}
	return nil
}

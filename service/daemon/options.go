// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/backdoor"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/node"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/web"
	"github.com/kuryr/raven/service/writeback"
)

const declarer = "kuryr.raven"

// OptionGroup is the group of Raven's own options.
const OptionGroup = "raven"

func num(f float64) *float64 { return &f }

// ravenOptions are the options that the wiring itself uses.
func ravenOptions() []config.Option {
	return []config.Option{
		{
			Group: OptionGroup, Name: "drivers", Type: config.List, Default: "namespace,pod", Pattern: driverName,
			Declarer: declarer,
			Help: "The drivers to run, by name: each is a program raven-driver-<name>, looked for in plugin_dir and then " +
				"beside the raven program. The default serves no Services, since how is a choice with a price: add lbaas for an " +
				"Octavia load balancer each, or kubeproxy for OVN load balancers, which needs [ovn] nb_connection.",
		},
		{
			Group: OptionGroup, Name: "plugin_dir", Declarer: declarer, Default: "/usr/lib/raven/plugins",
			Help: "The folder with drivers from outside. It need not exist.",
		},
		{
			Group: OptionGroup, Name: "runtime_dir", Declarer: declarer, SampleDefault: "$XDG_RUNTIME_DIR/raven",
			Help: "The folder for sockets, made with mode 0700 if need be. Its path must be short: a socket's path has " +
				"at most 108 bytes. Default: raven below $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR or the folder for temporary files.",
		},
		{
			Group: OptionGroup, Name: "cluster_name", Declarer: declarer,
			Help: "A name of this cluster for people. Identity never rests on it.",
		},
		{
			Group: OptionGroup, Name: "cluster_id", Declarer: declarer,
			Help: "What tells this cluster's resources from those of others in the same cloud project. Default: the UID of " +
				"namespace kube-system. Changing it abandons what was made under the old one.",
		},
		{
			Group: OptionGroup, Name: "concurrency", Type: config.Integer, Default: "1024", Min: num(1), Max: num(100000),
			Advanced: true, Declarer: declarer,
			Help: "How many objects of one driver are worked on at once. Requests to the cloud are bounded by [neutron].",
		},
	}
}

// loopOptions say how often the cloud is checked, how much may be deleted then, and how long a driver may take.
func loopOptions() []config.Option {
	return []config.Option{
		{
			Group: OptionGroup, Name: "drift_check_interval", Type: config.Duration, Default: "300", Min: num(1),
			Declarer: declarer,
			Help: "The time between two checks of the cloud for changes that others made, in seconds: a few lists per " +
				"kind.",
		},
		{
			Group: OptionGroup, Name: "sweep_interval", Type: config.Duration, Default: "60", Min: num(1), Declarer: declarer,
			Help: "The time between two runs of the garbage collection of resources whose objects are gone, in seconds.",
		},
		{
			Group: OptionGroup, Name: "sweep_limit", Type: config.Integer, Default: "100", Min: num(1), Advanced: true,
			Declarer: declarer,
			Help:     "How many vanished objects one look clears up at most.",
		},
		{
			Group: OptionGroup, Name: "max_replay_deletes", Type: config.Integer, Default: "20", Min: num(0), Declarer: declarer,
			Help: "How many resources of objects that still exist may be deleted on a driver's word after it, or Raven, was " +
				"started anew. More is held back until an operator raises this; `raven plan` shows it.",
		},
		{
			Group: OptionGroup, Name: "max_replay_delete_share", Type: config.Float, Default: "0.1", Min: num(0), Max: num(1),
			Declarer: declarer,
			Help: "The same bound as a share of the driver's resources. The lower of the two holds, but ten deletions always " +
				"pass if max_replay_deletes lets them: in a small cluster a few pods are a large share.",
		},
		{
			Group: OptionGroup, Name: "translate_timeout", Type: config.Duration, Default: "30", Min: num(1), Advanced: true,
			Declarer: declarer,
			Help:     "How long a driver may take over one object, in seconds.",
		},
		{
			Group: OptionGroup, Name: "port_pool_writers", Type: config.Integer, Default: "4", Min: num(1), Max: num(64),
			Advanced: true, Declarer: declarer,
			Help: "How many ports that were taken from pools are written as their pods' at once: tags, name, device_id and " +
				"binding:host_id. The metric raven_port_pool_behind says how many wait. See [vif_pool].",
		},
	}
}

// laterOptions are options that operators know from kuryr-kubernetes and that have no effect here yet.
func laterOptions() []config.Option {
	const made = "neutron_defaults"
	return []config.Option{
		{
			Group: "kubernetes", Name: "vif_pool_driver", Advanced: true, Declarer: declarer,
			Help: "Which pools of ports there are.", NoEffect: "set [vif_pool] vif_pool_driver",
		},
		{
			Group: made, Name: "resource_tags", Type: config.List, Advanced: true, Declarer: declarer,
			Help:     "Tags of all that is made.",
			NoEffect: "Raven marks what it makes by tags of its own, raven:cluster= and others; tags that an operator adds stay",
		},
		{
			Group: made, Name: "project", Advanced: true, Declarer: declarer, Help: "The project of what is made.",
			NoEffect: "it is that of the credentials in [neutron]",
		},
		{
			Group: made, Name: "pod_subnet", Advanced: true, Declarer: declarer, Help: "One subnet for all pods.",
			NoEffect: "every namespace has a subnet, from [namespace_subnet] pod_subnet_pool or cluster_subnet_pool",
		},
	}
}

// Options are all options but those of drivers.
func Options() []config.Option {
	return slices.Concat(
		ravenOptions(), loopOptions(), sandboxOptions(), service.Options(), backdoor.Options(), log.Options(),
		health.Options(), web.Options(),
		watch.Options(), leader.Options(), writeback.Options(), openstack.Options(), octavia.Options(), ovn.Options(),
		node.Options(), laterOptions(),
	)
}

// driverOption is a driver's option in terms of the configuration.
func driverOption(driver string, o drivers.Option) config.Option {
	option := config.Option{
		Group: o.Group, Name: o.Name, Type: config.Type(o.Type), Default: o.Default, HasDefault: o.HasDefault, Help: o.Help,
		Choices: o.Choices, ChoiceHelp: o.ChoiceHelp, Min: o.Min, Max: o.Max, Secret: o.Secret, Required: o.Required,
		Env:  o.Env,
		Item: config.Type(o.Item), Pattern: o.Pattern, IgnoreCase: o.IgnoreCase, MaxLength: o.MaxLength, Schemes: o.Schemes,
		IPVersion: o.IPVersion, SampleDefault: o.SampleDefault, Advanced: o.Advanced,
		DeprecatedForRemoval: o.DeprecatedForRemoval,
		DeprecatedSince:      o.DeprecatedSince, Reason: o.DeprecatedReason, Declarer: "driver " + driver,
	}
	for _, d := range o.Deprecated {
		option.Deprecated = append(option.Deprecated, config.Name{Group: d[0], Name: d[1]})
	}
	return option
}

// RuntimeDir returns the folder for sockets.
func RuntimeDir(v *config.Values) string {
	if dir := v.String(OptionGroup, "runtime_dir"); dir != "" {
		return dir
	}
	for _, name := range []string{"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"} {
		if dir, _, _ := strings.Cut(os.Getenv(name), ":"); dir != "" {
			return dir + "/raven"
		}
	}
	return fmt.Sprintf("%s/raven-%d", strings.TrimSuffix(os.TempDir(), "/"), os.Getuid())
}

// OptionGroups say what the groups of options are about.
func OptionGroups() []config.Group {
	return []config.Group{
		{Name: "raven", Help: "Raven itself: which drivers run and how the loop behaves."},
		{Name: "kubernetes", Help: "How the Kubernetes API is reached."},
		{Name: "neutron", Help: "How the OpenStack cloud is reached, by the keystoneauth options."},
		{Name: "neutron_defaults", Help: "What resources are made with."},
		{Name: "namespace_subnet", Help: "The networks of namespaces."},
		{Name: "node", Help: "A node's daemon, raven node run, in a file of its own on each node."},
		{Name: "node_network", Help: "The network of nodes, by which they reach pods: driver node."},
		{Name: "web", Help: "The web page: see docs/web.md."},
		{Name: "octavia_defaults", Help: "The load balancers of Services."},
	}
}

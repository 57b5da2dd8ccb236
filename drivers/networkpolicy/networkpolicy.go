// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy is the translation driver that makes a security group with rules of each NetworkPolicy, and a
// group without rules of each distinct pair of selectors in peers. The driver pod puts ports into these groups. It must
// never do I/O or keep state between translations, and never allow what it cannot express.
package networkpolicy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/policy"
	"github.com/kuryr/raven/drivers/internal/services"
)

// The names of the watches beside that of NetworkPolicies.
const (
	pods       = "pods"
	namespaces = "namespaces"
)

type driver struct{ *conf.Of[config] }

// config is the configuration: the IP versions that pods have, as Neutron writes them.
type config struct{ etherTypes []string }

// New returns the driver.
func New() drivers.Driver { return &driver{conf.New(policy.Driver, parse)} }

func parse(values drivers.Values) (config, error) {
	switch families := values.String(conf.SubnetGroup, conf.OptFamilies); families {
	case conf.IPv4Only:
		return config{[]string{"IPv4"}}, nil
	case conf.IPv6Only:
		return config{[]string{"IPv6"}}, nil
	case conf.DualStack:
		return config{[]string{"IPv4", "IPv6"}}, nil
	default:
		return config{}, conf.Refusal(conf.SubnetGroup, conf.OptFamilies, "%q is none of %s, %s, %s", families,
			conf.IPv4Only, conf.IPv6Only, conf.DualStack)
	}
}

// Info implements drivers.Driver.
func (d *driver) Info() drivers.Info {
	return drivers.Info{
		Name: policy.Driver, Version: "1",
		Description: "Makes security groups and rules of NetworkPolicies.",
		Options:     []drivers.Option{conf.Families()},
		Kinds:       []drivers.Kind{drivers.KindSecurityGroup, drivers.KindSecurityGroupRule},
	}
}

// Watches implements drivers.Driver. Of pods the containers are read for the names of ports.
func (d *driver) Watches() []drivers.Watch {
	source := policy.Watch()
	source.Source, source.Selectors = true, nil
	return []drivers.Watch{
		source,
		{
			Name: pods, Kind: "Pod", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			Fields: []string{"metadata.labels", "spec.containers", "spec.hostNetwork", "status.phase"},
		},
		{
			Name: namespaces, Kind: "Namespace", GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
			Fields: []string{"metadata.labels"},
		},
		services.NeededWatch(),
		services.SlicesWatch(),
	}
}

// Translate implements drivers.Driver.
func (d *driver) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c, err := d.Config()
	if err != nil {
		return drivers.Set{}, err
	}
	p, err := policy.Read(object)
	if err != nil {
		return drivers.Set{}, fmt.Errorf("%w: its groups stay as they are", err)
	}
	b := &builder{
		config: c, policy: p, needs: needs, rules: map[string]drivers.SecurityGroupRule{}, chosen: map[string][]source{},
	}
	b.build()
	if b.err != nil || needs.Open() {
		return drivers.Set{}, b.err
	}
	return b.set, nil
}

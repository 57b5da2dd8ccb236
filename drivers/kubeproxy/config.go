// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/services"
)

// config is the configuration, checked and parsed.
type config struct {
	services.Config
	dedicated bool
}

// options are those of every driver that serves Services, so that a change of the driver takes no other, and the
// namespace driver's topology.
func options() []drivers.Option {
	return append([]drivers.Option{conf.Topology()}, services.Options()...)
}

func parse(values drivers.Values) (config, error) {
	p := &services.Parser{Values: values}
	topology := p.Choice(conf.SubnetGroup, conf.OptTopology, conf.SharedTopology, conf.DedicatedTopology)
	c := config{dedicated: topology == conf.DedicatedTopology}
	c.Config = p.Common(func(annotations map[string]string) []string {
		r := services.Reader{Annotations: annotations}
		r.Outside()
		return r.Problems
	})
	return c, p.Err()
}

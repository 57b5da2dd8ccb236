package kubeproxy

import (
	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

const optTopology = "topology"

// The topologies.
const (
	sharedTopology    = "shared"
	dedicatedTopology = "dedicated"
)

// config is the configuration, checked and parsed.
type config struct {
	services.Config
	dedicated bool
}

// options are those of every driver that serves Services, so that a change of the driver takes no other, and the namespace driver's
// topology, declared alike.
func options() []drivers.Option {
	return append([]drivers.Option{{
		Group: services.SubnetGroup, Name: optTopology, Type: drivers.StringOption, Default: sharedTopology, HasDefault: true,
		Choices: []string{sharedTopology, dedicatedTopology},
		Help: "How namespaces are joined. shared: one router and one service network for the cluster. dedicated: a router " +
			"and a service network per namespace, so that namespaces do not reach each other.",
	}}, services.Options()...)
}

func parse(values drivers.Values) (config, error) {
	p := &services.Parser{Values: values}
	c := config{dedicated: p.Choice(services.SubnetGroup, optTopology, sharedTopology, dedicatedTopology) == dedicatedTopology}
	c.Config = p.Common(func(annotations map[string]string) []string {
		r := services.Reader{Annotations: annotations}
		r.Outside()
		return r.Problems
	})
	return c, p.Err()
}

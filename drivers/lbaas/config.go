// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// maxTimeout is Octavia's own bound, in milliseconds.
const maxTimeout = 24 * 24 * 60 * 60 * 1000

// config is the configuration, checked and parsed.
type config struct {
	services.Config
	provider      string
	memberMode    string
	algorithm     string
	timeoutClient int64
	timeoutMember int64
	dual          string
	monitor       bool
}

// onSubnet says whether members are named with their subnets.
func (c *config) onSubnet(p provider) bool { return c.memberMode == memberL2 || p.onSubnet }

func parse(values drivers.Values) (config, error) {
	p := &services.Parser{Values: values}
	c := config{
		provider:      values.String(services.OctaviaGroup, optProvider),
		memberMode:    p.Choice(services.OctaviaGroup, optMemberMode, memberL2, memberL3),
		algorithm:     p.Choice(services.OctaviaGroup, optAlgorithm, algorithms()...),
		timeoutClient: values.Int(services.OctaviaGroup, optTimeoutClient),
		timeoutMember: values.Int(services.OctaviaGroup, optTimeoutMember),
		dual:          p.Choice(services.OctaviaGroup, optDualStack, dualAuto, dualAdditional, dualSeparate),
		monitor:       values.Bool(services.OctaviaGroup, optHealthMonitor),
	}
	if problem := badProvider(c.provider); problem != "" {
		p.Refuse(services.OctaviaGroup, optProvider, "%q %s", c.provider, problem)
	}
	c.Config = p.Common(func(annotations map[string]string) []string {
		r := reader{Reader: services.Reader{Annotations: annotations}}
		r.all(&c)
		return r.Problems
	})
	return c, p.Err()
}

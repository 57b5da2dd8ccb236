// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// The options of port pools, by the names that they have in kuryr-kubernetes.
const (
	poolGroup         = "vif_pool"
	optPoolDriver     = "vif_pool_driver"
	optPoolMax        = "ports_pool_max"
	optPoolMin        = "ports_pool_min"
	optPoolBatch      = "ports_pool_batch"
	optPoolFrequency  = "ports_pool_update_frequency"
	noPools           = "noop"
	neutronPools      = "neutron"
	defaultPoolMin    = "5"
	mostReadyPorts    = 10000
	portPoolMinField  = "metadata.annotations['" + PortPoolMinAnnotation + "']"
	portPoolMaxField  = "metadata.annotations['" + PortPoolMaxAnnotation + "']"
	portPoolAnnotated = "PortPoolAnnotation" // reason of a diagnostic
)

// The annotations by which a namespace has other bounds of its port pool than the configuration's. A maximum of 0, or a
// minimum where no pools are configured, switches the namespace's pool: 0 off, a minimum on.
const (
	PortPoolMinAnnotation = "kuryr.org/ports-pool-min"
	PortPoolMaxAnnotation = "kuryr.org/ports-pool-max"
)

func poolOptions() []drivers.Option {
	count := func(name, value, help string, least float64) drivers.Option {
		return drivers.Option{
			Group: poolGroup, Name: name, Type: drivers.IntegerOption, Default: value, HasDefault: true,
			Min: new(least), Max: new(float64(mostReadyPorts)), Help: help,
		}
	}
	return []drivers.Option{
		{
			Group: poolGroup, Name: optPoolDriver, Type: drivers.StringOption, Default: noPools, HasDefault: true,
			Choices: []string{noPools, neutronPools},
			ChoiceHelp: map[string]string{
				noPools: "A port is made when a pod is there", neutronPools: "Ready ports wait in each namespace",
			},
			Help: "Whether namespaces have pools of ready ports, of which pods take one: a pod's port is there at once then, " +
				"and Neutron is told afterwards. noop: no pools. The annotations " + PortPoolMinAnnotation + " and " +
				PortPoolMaxAnnotation + " of a namespace override the bounds; a minimum switches its pool on.",
		},
		count(optPoolMax, "0", "The most ready ports of a namespace. 0 is no bound.", 0),
		count(optPoolMin, defaultPoolMin, "The fewest ready ports of a namespace. There are more where more pods came in "+
			"the last two minutes.", 0),
		count(optPoolBatch, "10", "How many ports are made by one request at most.", 1),
		count(optPoolFrequency, "20", "The time between two tries to fill a pool that could not be filled, in seconds.", 1),
	}
}

// portPool is the configuration of a namespace's pool.
type portPool struct {
	enabled                   bool
	min, max, batch, interval int64
	// groups are the configured security groups of pods, UUIDs or names; empty: the namespace's.
	groups []string
}

func (p *parser) portPool() portPool {
	c := portPool{
		enabled: p.values.String(poolGroup, optPoolDriver) == neutronPools,
		min:     p.values.Int(poolGroup, optPoolMin), max: p.values.Int(poolGroup, optPoolMax),
		batch: p.values.Int(poolGroup, optPoolBatch), interval: p.values.Int(poolGroup, optPoolFrequency),
		groups: p.values.List(conf.DefaultsGroup, conf.OptSecurityGroups),
	}
	if c.max > 0 && c.min > c.max {
		p.refuse(poolGroup, optPoolMin, "%d is more than %s, which is %d", c.min, conf.Name(poolGroup, optPoolMax), c.max)
	}
	return c
}

// of returns the configuration as a namespace's annotations change it, and what is wrong with these: a wrong one does
// not count.
func (c portPool) of(annotations map[string]string) (portPool, []drivers.Diagnostic) {
	var wrong []string
	read := func(key string, into *int64) (given bool) {
		text, given := annotations[key]
		if !given {
			return false
		}
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil || n < 0 || n > mostReadyPorts {
			wrong = append(wrong, fmt.Sprintf("annotation %s is %q, and not a number from 0 to %d", key, text, mostReadyPorts))
			return false
		}
		*into = n
		return true
	}
	if read(PortPoolMinAnnotation, &c.min) {
		c.enabled = c.enabled || c.min > 0
	}
	if read(PortPoolMaxAnnotation, &c.max) && c.max == 0 {
		c.enabled = false
	}
	if c.max > 0 {
		c.min = min(c.min, c.max)
	}
	var diagnostics []drivers.Diagnostic
	if len(wrong) > 0 {
		diagnostics = append(diagnostics, drivers.Diagnostic{
			Severity: drivers.Warning, Reason: portPoolAnnotated, Message: strings.Join(wrong, "; ") + ": it does not count",
		})
	}
	return c, diagnostics
}

// portPool adds the pool of ports for pods of the namespace that no NetworkPolicy isolates but one for all of them. It
// waits for the subnets, as pods' ports do.
func (b *builder) portPool(c portPool, isolated *isolation) {
	if !c.enabled {
		return
	}
	var groups []drivers.Value
	switch {
	case isolated != nil:
		groups = append(groups, drivers.From("members"))
		if !isolated.ingress {
			groups = append(groups, drivers.From("open-in"))
		}
		if !isolated.egress {
			groups = append(groups, drivers.From("open-out"))
		}
	case len(c.groups) == 0:
		groups = append(groups, drivers.From("security-group"))
	}
	if isolated == nil {
		for i, group := range c.groups {
			if drivers.IsUUID(group) {
				groups = append(groups, drivers.Text(strings.ToLower(group)))
				continue
			}
			logical := fmt.Sprintf("pod-security-group-%d", i+1)
			b.lookup(logical, drivers.KindSecurityGroup, group)
			groups = append(groups, drivers.From(logical))
		}
	}
	var after []drivers.Ref
	for _, f := range b.families {
		after = append(after, drivers.Ref{Name: "subnet" + f.suffix})
	}
	b.add(drivers.Resource{Name: "port-pool", After: after, Spec: drivers.PortPool{
		NetworkID: drivers.From("network"), SecurityGroups: groups, DeviceOwner: new(contract.DeviceOwner),
		Min: new(c.min), Max: new(c.max), Batch: new(c.batch), Interval: new(c.interval),
	}})
}

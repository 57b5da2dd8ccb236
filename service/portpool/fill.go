// SPDX-License-Identifier: Apache-2.0

package portpool

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

const (
	// fills is how many pools are filled at once.
	fills = 2
	// patience is the time between two looks while something waits for its time.
	patience = 200 * time.Millisecond
	// defaultBatch and defaultInterval are the core's choices where a driver has none.
	defaultBatch    = 10
	defaultInterval = 20 * time.Second
	// readyName is the name of ready ports in Neutron, for people.
	readyName = "available-port"
)

// run fills the pools, and writes what was taken of them, until ctx ends.
func (p *Pools) run(ctx context.Context) {
	p.env.State.Update(func(tx *state.Tx) { p.elder.began = tx.Now() })
	var work sync.WaitGroup
	defer work.Wait()
	for range p.config.Writers {
		work.Go(func() { p.writer(ctx) })
	}
	for {
		var timer <-chan time.Time
		if p.round(ctx, &work) {
			timer = p.env.Clock.After(patience)
		}
		select {
		case <-p.kick:
		case <-timer:
		case <-ctx.Done():
			return
		}
	}
}

// round begins what can be begun now. It says whether something waits for its time.
func (p *Pools) round(ctx context.Context, work *sync.WaitGroup) (waits bool) {
	p.settle()
	idle := p.neutron.Idle()
	var give []string
	p.env.State.Update(func(tx *state.Tx) {
		flying := 0
		for _, pool := range p.pools {
			if pool.making > 0 {
				flying++
			}
		}
		give = p.unwanted(tx)
		for _, id := range slices.Sorted(maps.Keys(p.pools)) {
			pool := p.pools[id]
			missing := p.missing(tx, pool)
			waits = waits || missing > 0 || pool.surplus != (time.Time{})
			switch {
			case missing <= 0:
				pool.lacking = time.Time{}
			case pool.lacking.IsZero():
				pool.lacking = tx.Now()
			}
			if missing <= 0 || !idle || flying >= fills || !p.mayFill(tx, pool) {
				continue
			}
			flying++
			n := min(missing, pool.batch())
			pool.making += n
			work.Go(func() { p.fill(ctx, pool, n) })
		}
		waits = waits || !p.elder.settled && len(p.ready) > 0
	})
	for _, id := range give {
		work.Go(func() { _ = p.drop(ctx, id) })
	}
	return waits
}

// mayFill says whether ports may be made for a pool now that lacks some.
func (p *Pools) mayFill(tx *state.Tx, pool *pool) bool {
	return pool.making == 0 && p.rest(tx, pool.lacking) <= 0 && !tx.Now().Before(pool.notBefore) &&
		tx.Waiting(state.ByQuota(drivers.KindPort)) == 0
}

func (pool *pool) number(name string) int {
	switch n := pool.Attrs[name].(type) {
	case int64:
		return int(n)
	case float64:
		return int(n)
	}
	return 0
}

func (pool *pool) batch() int { return cmp.Or(pool.number("batch"), defaultBatch) }

func (pool *pool) interval() time.Duration {
	return cmp.Or(time.Duration(pool.number("interval"))*time.Second, defaultInterval)
}

// target is how many ready ports a pool should have: what was wanted a short while ago, within its bounds.
func (p *Pools) target(tx *state.Tx, pool *pool) int {
	recent := slices.IndexFunc(pool.demand, func(at time.Time) bool { return tx.Now().Sub(at) < p.config.Window })
	if recent < 0 {
		recent = len(pool.demand)
	}
	pool.demand = slices.Delete(pool.demand, 0, recent)
	n := max(pool.number("min"), len(pool.demand))
	if most := pool.number("max"); most > 0 {
		n = min(n, most)
	}
	return n
}

// missing is how many ready ports a pool lacks.
func (p *Pools) missing(tx *state.Tx, pool *pool) int {
	return p.target(tx, pool) - len(p.readyOf(tx, pool)) - pool.making
}

// readyOf returns the ready ports of a pool that can be taken, or may be soon.
func (p *Pools) readyOf(tx *state.Tx, pool *pool) (list []plan.Observed) {
	for _, id := range p.ready[textOf(pool.Attrs["network_id"])] {
		o, there := tx.Cache.Get(KindReadyPort, id)
		if there && !p.busy[id] && o.Identity.Owner == pool.Identity.Owner && isOf(o.Identity, pool.Identity.Name) &&
			(p.mine[o.Identity.Name] || !p.elder.spoiled(o)) {
			list = append(list, o)
		}
	}
	return list
}

// unwanted marks ready ports that are to be deleted, and returns them: what a pool has too many of for a while, what
// does not fit it any more, and what nobody can be given. As long as somebody may have one it is left alone.
func (p *Pools) unwanted(tx *state.Tx) (list []string) {
	give := func(o plan.Observed) {
		if !p.busy[o.ID] && !p.mayBeTaken(o) {
			p.busy[o.ID] = true
			list = append(list, o.ID)
		}
	}
	for _, pool := range p.pools {
		ready := p.readyOf(tx, pool)
		ready = slices.DeleteFunc(ready, func(o plan.Observed) bool {
			misfit := !slices.Equal(ids(o.Attrs["security_groups"]), ids(pool.Attrs["security_groups"]))
			if misfit {
				give(o)
			}
			return misfit
		})
		switch over := len(ready) - p.target(tx, pool); {
		case over <= 0:
			pool.surplus = time.Time{}
		case pool.surplus.IsZero():
			pool.surplus = tx.Now()
		case tx.Now().Sub(pool.surplus) >= p.config.Surplus:
			for _, o := range ready[:over] {
				give(o)
			}
		}
	}
	if p.elder.settled {
		for id := range p.elder.suspects {
			if o, there := tx.Cache.Get(KindReadyPort, id); there {
				give(o)
			} else {
				delete(p.elder.suspects, id)
			}
		}
	}
	return list
}

// fill makes ready ports for a pool, all at once, so that they share a request.
func (p *Pools) fill(ctx context.Context, pool *pool, n int) {
	var work sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		identity := pool.Identity
		identity.Name = readyNames(pool.Identity.Name) + rand.Text()[:12]
		identity.Policy = drivers.Delete
		attrs := map[string]any{"name": readyName, "mac_address": neutron.MAC(identity)}
		p.env.State.Update(func(*state.Tx) {
			p.mine[identity.Name] = true
			for _, name := range []string{"network_id", "security_groups", "device_owner"} {
				if value, ok := pool.Attrs[name]; ok {
					attrs[name] = value
				}
			}
		})
		work.Go(func() {
			errs[i] = p.neutron.Make(ctx, &plan.Step{
				Op: plan.Create, Kind: drivers.KindPort, Identity: identity, Attrs: attrs, Reason: "a pool has too few",
			})
			if errs[i] != nil && openstack.Classify(errs[i]) != openstack.ClassAmbiguous {
				p.env.State.Update(func(*state.Tx) { delete(p.mine, identity.Name) })
			}
		})
	}
	work.Wait()
	p.filled(ctx, pool, n, errs)
}

// filled takes down how filling a pool went. A pool that is refused something waits; the others do not.
func (p *Pools) filled(ctx context.Context, pool *pool, n int, errs []error) {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	said := false
	p.env.State.Update(func(tx *state.Tx) {
		pool.making -= n
		if p.pools[pool.ID] != pool {
			tx.WakeOwner(pool.Identity.Owner) // it was switched off meanwhile
		}
		if i < 0 {
			pool.refused = nil
			return
		}
		said = pool.refused != nil
		pool.refused, pool.notBefore = errs[i], tx.Now().Add(pool.interval())
	})
	if i >= 0 && !said && ctx.Err() == nil {
		p.env.Log.WarnContext(ctx, "a port pool could not be filled, requeued", "pool", pool.ID, "after", pool.interval(),
			"error", errs[i])
	}
	p.look()
}

// giveWay deletes a ready port where the create of a port lacks what one has: quota, or an address of its network. It
// says whether the create can be tried again.
func (p *Pools) giveWay(ctx context.Context, step plan.Step, err error) bool {
	network := textOf(step.Attrs["network_id"])
	class := openstack.Classify(err)
	if class != openstack.ClassQuota && class != openstack.ClassSubnetFull {
		return false
	}
	id := ""
	p.env.State.Update(func(tx *state.Tx) {
		for _, pool := range p.pools {
			if class == openstack.ClassQuota || textOf(pool.Attrs["network_id"]) == network {
				pool.notBefore = tx.Now().Add(pool.interval())
			}
		}
		most := 0
		for of, list := range p.ready {
			if class == openstack.ClassSubnetFull && of != network || len(list) <= most {
				continue
			}
			for _, candidate := range list {
				o, there := tx.Cache.Get(KindReadyPort, candidate)
				if there && !p.busy[candidate] && !p.mayBeTaken(o) {
					id, most = candidate, len(list)
					break
				}
			}
		}
		if id != "" {
			p.busy[id] = true
		}
	})
	return id != "" && p.drop(ctx, id) == nil
}

var _ backend.Backend = (*pooled)(nil)

// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// incrementalFor is how long it is remembered that the parts of a load balancer were refused together.
const incrementalFor = time.Hour

// create makes a load balancer with as many of its parts as its provider is known to make at once, or can take.
func (b *Backend) create(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	wanted := step.Attrs
	asked, _ := wanted["provider"].(string)
	key := state.KeyOf(step.Kind, step.Identity)
	var (
		can     capabilities
		less    map[string]any
		refused bool
	)
	b.env.State.Update(func(*state.Tx) {
		can, less = *b.capabilitiesOf(asked), b.lesser(key, wanted)
		_, refused = b.incremental[key]
	})
	step.Attrs = can.within(wanted)
	if refused {
		step.Attrs = can.within(less)
	}
	made, freed, err := b.request(ctx, step)
	if partsIn(less) < partsIn(step.Attrs) && blamesParts(err) {
		// One of the parts is more than the provider, or this Octavia, can do: it is told which when they are made one by
		// one.
		b.env.State.Update(func(tx *state.Tx) { b.incremental[key] = tx.Now().Add(incrementalFor) })
		step.Attrs = can.within(less)
		if left := (leftError{}); errors.As(err, &left) {
			left.otherwise = true
			return made, left
		}
		made, freed, err = b.request(ctx, step)
		if openstack.Classify(err) == openstack.ClassTerminal { // nor without them: it is not they that are to blame
			b.env.State.Update(func(*state.Tx) { delete(b.incremental, key) })
		}
	}
	if freed && openstack.Classify(err) == openstack.ClassExists {
		made, _, err = b.request(ctx, step)
	}
	if err != nil {
		return made, err
	}
	b.env.State.Update(func(tx *state.Tx) {
		delete(b.incremental, key)
		b.busy[made.ID] = &busyPeriod{since: tx.Now(), moved: tx.Now(), full: partsIn(step.Attrs) > 0}
		if asked == "" { // what is learned of the default provider is learned of its name
			b.providers[""] = b.capabilitiesOf(provider(made))
		}
	})
	return made, nil
}

// request asks for a load balancer, and removes what a refusal has left behind. freed says that there was something.
// The error is the refusal, or why that could not be done.
func (b *Backend) request(ctx context.Context, step *plan.Step) (made plan.Observed, freed bool, err error) {
	made, refusal := b.client.Create(ctx, step.Identity, step.Attrs)
	class := openstack.Classify(refusal)
	switch class {
	case openstack.ClassUnsupported, openstack.ClassTerminal, openstack.ClassQuota, openstack.ClassExists,
		openstack.ClassNotFound:
	default:
		return made, false, refusal
	}
	freed, wait, err := b.client.FreeVIP(
		ctx, asText(step.Attrs["vip_subnet_id"]), asText(step.Attrs["vip_address"]), b.env.Timing.UnknownWait)
	switch {
	case err != nil:
		return made, freed, fmt.Errorf("%w; searching for a VIP port that this left behind: %w", refusal, err)
	case wait > 0 && (class == openstack.ClassUnsupported || class == openstack.ClassExists ||
		partsIn(step.Attrs) > 0 && blamesParts(refusal)):
		return made, freed, leftError{error: refusal, wait: wait}
	}
	return made, freed, refusal
}

// leftError is the refusal of a load balancer whose address is held by a VIP port that may be left behind, or belong to
// a create that is under way.
type leftError struct {
	error
	wait      time.Duration
	otherwise bool // it is asked for otherwise then: its parts one by one
}

func (l leftError) Unwrap() error { return l.error }

func (l leftError) note() string {
	return fmt.Sprintf("a port has the address that no load balancer owns: it may belong to one that is being made, and "+
		"is removed if that is so in %s still", l.wait.Round(time.Second))
}

// partsIn counts the listeners and pools that a load balancer is to be made with.
func partsIn(attrs map[string]any) int {
	return len(asList(attrs["listeners"])) + len(asList(attrs["pools"]))
}

// createWithVIPs makes a load balancer without the additional addresses where those are what it is refused for: the
// first is then served, and people are told of the others. Whether the refusal was about the provider or these
// addresses is unknown: it counts as long as the same is desired.
func (b *Backend) createWithVIPs(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	wanted := step.Attrs
	made, err := b.create(ctx, step)
	class := openstack.Classify(err)
	refused := class == openstack.ClassTerminal || class == openstack.ClassUnsupported
	if !refused || len(asList(wanted["additional_vips"])) == 0 || !strings.Contains(err.Error(), "additional_vips") {
		return made, err
	}
	refusal := err
	step.Attrs = maps.Clone(wanted)
	delete(step.Attrs, "additional_vips")
	blocked := block{}
	b.env.State.Update(func(tx *state.Tx) { _, blocked.desired = desiredOf(tx, step.Identity) })
	if blocked.desired != "" {
		step.Attrs["tags"] = []string{refusedTag(refusedVIPsMark, blocked.desired)}
	}
	made, err = b.create(ctx, step)
	// A service that shows none knows of none: the plan says so.
	if _, shown := made.Attrs["additional_vips"]; err != nil || !shown {
		return made, err
	}
	blocked.current = currentFields(made)
	blocked.err = fmt.Errorf(
		"load balancer %s is made without its additional addresses, with which it was refused: %w", made.ID, refusal)
	b.env.State.Update(func(*state.Tx) { b.blocks[state.KeyOf(step.Kind, step.Identity)] = blocked })
	return made, nil
}

// What of a load balancer is refused must not keep the rest of it from being served, nor be asked for at every change
// of the rest:
//
//	with parts, 501, or 400 that may be about a part   it is made without parts, and these one by one
//	with parts, in place of one that had them          it is refused, and the other one made again
//	in place of one that had only some of them         it is made with those, and the others one by one
//	without parts, 400                                 it is refused
//	a part, 400 or 501                                 told, and asked for again after a while, or when it differs
//
// An Octavia that does not know a protocol says so by 400, as it says everything that it cannot read; a provider says
// by 501 what it cannot do.

// blamesParts says whether the refusal of a load balancer with parts may be about one of these.
func blamesParts(err error) bool {
	switch openstack.Classify(err) { //nolint:exhaustive // the others are about the whole, or pass
	case openstack.ClassUnsupported:
		return true
	case openstack.ClassTerminal:
		text := strings.ToLower(err.Error())
		return !slices.ContainsFunc([]string{
			"additional_vips", "vip_address", "vip_network_id", "vip_subnet_id", "vip_port_id", "is not a valid ip for",
			"flavor", "availability",
		}, func(whole string) bool { return strings.Contains(text, whole) })
	}
	return false
}

// lesser returns what is asked for of a load balancer that was refused with all its parts. It is called with the
// state's lock held.
func (b *Backend) lesser(key state.IdentityKey, wanted map[string]any) map[string]any {
	old, ok := b.replacements[key]
	if _, blocked := b.blocks[key]; !ok || blocked || sameFields(wanted, old.current) {
		return capabilities{bare: true}.within(wanted)
	}
	had := func(list string, name any) bool {
		return slices.ContainsFunc(asList(old.parts[list]), func(part any) bool { return nameIn(part) == name })
	}
	pools := map[any]bool{} // whether a listener that is asked for leads to it
	attrs := maps.Clone(wanted)
	attrs["listeners"] = slices.DeleteFunc(slices.Clone(asList(wanted["listeners"])), func(element any) bool {
		pool := structure(element)["default_pool"]
		led := had("listeners", nameIn(element)) && (asText(pool) == "" || had("pools", pool))
		pools[pool] = pools[pool] || led
		return !led
	})
	attrs["pools"] = slices.DeleteFunc(slices.Clone(asList(wanted["pools"])), func(pool any) bool {
		led, named := pools[nameIn(pool)]
		return !had("pools", nameIn(pool)) || named && !led
	})
	return attrs
}

// partsOf are the listeners and pools of a load balancer.
func partsOf(lb plan.Observed) map[string]any {
	return map[string]any{"listeners": lb.Attrs["listeners"], "pools": lb.Attrs["pools"]}
}

func nameIn(part any) any { return structure(part)["name"] }

// balancedAsBefore returns pools with the algorithms that those of a load balancer had which has gone: which of them
// there are is the provider's.
func balancedAsBefore(pools, before []any) []any {
	pools = slices.Clone(pools)
	for i, element := range pools {
		at := slices.IndexFunc(before, func(old any) bool { return nameIn(old) == nameIn(element) })
		if at < 0 {
			continue
		}
		if algorithm := asText(structure(before[at])["lb_algorithm"]); algorithm != "" {
			pool := maps.Clone(structure(element))
			pool["lb_algorithm"] = algorithm
			pools[i] = pool
		}
	}
	return pools
}

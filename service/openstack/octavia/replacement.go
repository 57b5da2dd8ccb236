// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// replacement is a load balancer that goes for another one: what it was made of, should the other be refused.
type replacement struct {
	current  map[string]any
	parts    map[string]any // its listeners and pools
	identity plan.Identity
	id       string
	since    time.Time
}

// reservationFor is how long the place in the quota of a load balancer that has gone is kept for the one that takes its
// place.
const reservationFor = 5 * time.Minute

// exhaustedFor is how long after a refusal the quota counts as exhausted: those who wait try more often than that.
const exhaustedFor = 5 * time.Minute

// reservedError says that a load balancer is not asked for while the only place there may be belongs to another one.
type reservedError struct{ of string }

func (r reservedError) Error() string {
	return fmt.Sprintf(
		"there is no room in the quota, and the next place is that of load balancer %s, which is just being made anew", r.of)
}

// restoreError is why a load balancer that has gone could not be made again as it was, for now.
type restoreError struct{ refused, err error }

func (r restoreError) Error() string {
	return fmt.Sprintf("%v (making it again as it was, since %v)", r.err, r.refused)
}
func (r restoreError) Unwrap() error { return r.err }

// refusedAs says whether an error is the last word on what a load balancer was to be made of.
func refusedAs(err error) bool {
	switch openstack.Classify(err) { //nolint:exhaustive // the others may pass
	case openstack.ClassTerminal, openstack.ClassUnsupported, openstack.ClassNotFound, openstack.ClassExists:
		return true
	}
	return false
}

// These are the tags of a load balancer that is made otherwise than was desired, since that was refused: as it was, or
// without its additional addresses. They name what was desired, so that a restart gives nothing up for the same
// refusal.
const (
	refusedMark     = "raven:refused="
	refusedVIPsMark = "raven:refused-vips="
)

func refusedTag(mark, desired string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(desired)) // it never fails
	return fmt.Sprintf("%s%016x", mark, h.Sum64())
}

// replace makes a load balancer, and if that is refused in place of one that has gone, the one that has gone. As long
// as a replacement is blocked it is made as it was at once.
func (b *Backend) replace(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	key := state.KeyOf(step.Kind, step.Identity)
	var (
		old              replacement
		blocking         block
		instead, blocked bool
		holds            string
	)
	b.env.State.Update(func(tx *state.Tx) {
		old, instead = b.replacements[key]
		blocking, blocked = b.blocks[key]
		if !instead {
			holds = b.reservedFor(tx)
		}
	})
	if holds != "" {
		return plan.Observed{}, reservedError{holds}
	}
	if !blocked {
		wanted := step.Attrs
		made, err := b.createWithVIPs(ctx, step)
		if err == nil {
			b.env.State.Update(func(*state.Tx) { delete(b.replacements, key) })
		}
		if err == nil || !instead || b.undecided(ctx, *step, err) || sameFields(wanted, old.current) {
			return made, err
		}
		step.Attrs = wanted
		blocking = block{
			current: old.current, parts: old.parts,
			err: fmt.Errorf("load balancer %s is made anew as it was, since another one was refused: %w", nameOf(*step), err),
		}
		b.env.State.Update(func(tx *state.Tx) { // before anything is asked for: an answer may be lost
			delete(b.lifted, key)
			delete(b.incremental, key)
			_, blocking.desired = desiredOf(tx, step.Identity)
			b.blocks[key] = blocking
		})
	}
	return b.restore(ctx, step, blocking)
}

// restore makes a load balancer that has gone as it was. If that is refused as well, what is desired has its turn
// again.
func (b *Backend) restore(ctx context.Context, step *plan.Step, blocking block) (plan.Observed, error) {
	key := state.KeyOf(step.Kind, step.Identity)
	step.Attrs = asItWas(step.Attrs, blocking.current)
	if pools := asList(step.Attrs["pools"]); len(pools) > 0 {
		step.Attrs["pools"] = balancedAsBefore(pools, asList(blocking.parts["pools"]))
	}
	if blocking.until.IsZero() && blocking.desired != "" {
		step.Attrs["tags"] = []string{refusedTag(refusedMark, blocking.desired)}
	}
	made, err := b.create(ctx, step)
	switch {
	case err == nil:
		b.env.State.Update(func(*state.Tx) { delete(b.replacements, key) })
		return made, nil
	case b.undecided(ctx, *step, err):
		return made, restoreError{blocking.err, err}
	}
	b.env.State.Update(func(*state.Tx) { delete(b.blocks, key) })
	return made, restoreError{blocking.err, err}
}

// undecided says whether a refused create is not refused for good: it is still to be asked for otherwise, or is there
// after all.
func (b *Backend) undecided(ctx context.Context, step plan.Step, err error) bool {
	left := leftError{}
	switch class := openstack.Classify(err); {
	case !refusedAs(err):
		return true
	case errors.As(err, &left):
		return left.otherwise || class == openstack.ClassExists
	case class == openstack.ClassExists:
		adopted, lerr := b.env.Loop.Adopt(ctx, step)
		return adopted || lerr != nil
	}
	return false
}

func nameOf(step plan.Step) string {
	if name := asText(step.Attrs["name"]); name != "" {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q", step.Identity.Name)
}

// asItWas is what is wanted with what cannot be changed in place as it was.
func asItWas(wanted, current map[string]any) map[string]any {
	attrs := maps.Clone(wanted)
	for _, name := range immutableFields() {
		delete(attrs, name)
		if value := current[name]; value != nil {
			attrs[name] = value
		}
	}
	return attrs
}

// sameFields says whether a load balancer would be made of the same as the one that has gone.
func sameFields(wanted, current map[string]any) bool {
	for _, name := range []string{"provider", "flavor_id", "availability_zone", "vip_subnet_id"} {
		if want := asText(wanted[name]); want != "" && want != asText(current[name]) {
			return false
		}
	}
	if asText(wanted["vip_port_id"]) != "" ||
		asText(wanted["vip_network_id"]) != "" && asText(wanted["vip_subnet_id"]) == "" {
		return false // whether that is the same is not known
	}
	named := slices.DeleteFunc(locations(wanted), func(l location) bool { return l.address == "" })
	_, additional := wanted["additional_vips"]
	return !slices.ContainsFunc(named, func(l location) bool { return !has(current, l) }) &&
		(!additional || len(asList(wanted["additional_vips"])) == len(asList(current["additional_vips"])))
}

// unknownOutcomes are creates that the service failed at, and how often in a row.
type unknownOutcomes struct {
	times int
	text  string
}

// noteUnknown notes that the outcome of a create is unknown. It is called with the state's lock held.
func (b *Backend) noteUnknown(step plan.Step, text string) {
	key := state.KeyOf(step.Kind, step.Identity)
	b.unknown[key] = unknownOutcomes{b.unknown[key].times + 1, text}
}

// replaced forgets what a load balancer was that has gone, once another one is there in its place. It is called with
// the state's lock held.
func (b *Backend) replaced(lb plan.Observed) {
	key := state.KeyOf(lb.Kind, lb.Identity)
	delete(b.unknown, key)
	if old, ok := b.replacements[key]; ok && old.id != lb.ID {
		delete(b.replacements, key)
	}
}

// reservedFor names a load balancer that goes, or has gone, and is to be made anew, where there was no more room in the
// quota: its place is reserved.
func (b *Backend) reservedFor(tx *state.Tx) string {
	if b.quotaExhausted.IsZero() || tx.Now().Sub(b.quotaExhausted) > exhaustedFor {
		return ""
	}
	for _, old := range b.replacements {
		if tx.Now().Sub(old.since) < reservationFor {
			return tx.Describe(old.identity)
		}
	}
	return ""
}

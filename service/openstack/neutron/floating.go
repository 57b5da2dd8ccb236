// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// existingFloatingIP checks whether a floating IP whose create was refused exists already, and takes it where no other
// owner has it: Neutron refuses a second one of the address, and the address itself to most credentials. It returns
// nil where that is not what the refusal is about.
func (b *Backend) existingFloatingIP(ctx context.Context, r outcome.Refusal) *backend.Failure {
	address := textOf(r.Step.Attrs["floating_ip_address"])
	class := openstack.Classify(r.Err)
	if address == "" ||
		class != openstack.ClassExists && class != openstack.ClassForbidden && class != openstack.ClassRetry {
		return nil
	}
	switch adopted, err := b.env.Loop.Adopt(ctx, r.Step); {
	case err != nil:
		return b.outcome.Failure(outcome.Refusal{Step: r.Step, Err: err})
	case adopted:
		return b.outcome.Replan(r)
	}
	found, err := b.client.FindFloatingIP(ctx, address)
	switch missing := openstack.Classify(err) == openstack.ClassNotFound; {
	case missing && class == openstack.ClassForbidden:
		r.Note = fmt.Sprintf("these credentials may not ask for an address of their own choice, and the project has no "+
			"floating IP %s: have an administrator create it in this project, and Raven takes it", address)
		return b.outcome.Failure(r)
	case missing:
		r.Note = fmt.Sprintf("%s is not a floating IP of this project: another project has it", address)
		return b.outcome.Failure(r)
	case err != nil:
		return b.outcome.Failure(outcome.Refusal{Step: r.Step, Err: err})
	}
	if why := b.taken(found, r.Step); why != "" {
		r.Note = fmt.Sprintf("floating IP %s (%s) is not free: %s", address, found.ID, why)
		return b.outcome.Failure(r)
	}
	if err := b.take(ctx, r.Step, found); err != nil {
		return b.outcome.Failure(outcome.Refusal{Step: r.Step, Err: err})
	}
	return b.outcome.Replan(r)
}

// taken says why a floating IP cannot be had, and "" if it can: nothing uses it, and no owner that is there, or may
// be, has a claim to it.
func (b *Backend) taken(found plan.Observed, step plan.Step) (why string) {
	b.env.State.View(func(tx *state.Tx) { why = takenBy(tx, found, step) })
	return why
}

func takenBy(tx *state.Tx, found plan.Observed, step plan.Step) string {
	id := found.Identity
	owner := tx.Object(id.Owner)
	switch {
	case found.Managed && id.Key().Cluster != step.Identity.Key().Cluster:
		return "it belongs to cluster " + id.Cluster
	case found.Managed && owner != nil && !owner.Gone && id.Owner != step.Identity.Owner:
		return "it belongs to " + owner.Target.String()
	case found.Managed && owner == nil && tx.UnknownOwner(id.Owner) != "":
		return tx.UnknownOwner(id.Owner)
	case textOf(found.Attrs["port_id"]) != "":
		return "it leads to port " + textOf(found.Attrs["port_id"])
	case textOf(found.Attrs["floating_network_id"]) != textOf(step.Attrs["floating_network_id"]):
		return "it is on network " + textOf(found.Attrs["floating_network_id"])
	}
	return ""
}

// foundMark is the tag, and the word of the description, of a floating IP that was there before Raven took it: it is
// never deleted.
const foundMark = "raven:found"

func wasFound(o plan.Observed) bool {
	return slices.Contains(o.Tags, foundMark) || slices.Contains(strings.Fields(o.Description), foundMark)
}

// take writes this cluster's identity on a floating IP that Raven did not make for this object.
func (b *Backend) take(ctx context.Context, step plan.Step, found plan.Observed) error {
	identity := step.Identity
	identity.Policy = drivers.Retain
	var stale []string
	if found.Managed {
		stale = found.Identity.Tags() // Raven made it for an object that is gone, or took it for one
	}
	for _, tag := range found.Tags {
		if plan.IsMark(tag) {
			stale = append(stale, tag)
		}
	}
	if err := b.client.RemoveTags(ctx, found.Kind, found.ID, stale); err != nil {
		return err
	}
	description := found.Description
	if !wasFound(found) {
		description = foundMark + " " + description
	}
	tags := append(identity.Tags(), foundMark)
	b.env.State.View(func(tx *state.Tx) { tags = append(tags, marks(tx, identity.Owner)...) })
	taken, err := b.client.Update(ctx, found.Kind, found.ID, 0,
		map[string]any{"description": identity.Describe(description)})
	if err == nil {
		err = b.client.AddTags(ctx, found.Kind, found.ID, tags)
	}
	if err != nil {
		return err
	}
	taken.Tags = append(taken.Tags, tags...)
	taken.Identity, taken.Managed = identity, true
	b.env.Log.InfoContext(ctx, "adopted a floating IP that was there", "address", step.Attrs["floating_ip_address"],
		"id", found.ID)
	b.env.State.Update(func(tx *state.Tx) { tx.Arrive(taken) })
	return nil
}

// marks are the tags that name the Service which a floating IP is for: floating IPs have no name.
func marks(tx *state.Tx, id plan.Owner) []string {
	if o := tx.Object(id); o != nil && o.Target.Watch.Kind == "Service" {
		return []string{plan.Mark(o.Target.Namespace, o.Target.Name)}
	}
	return nil
}

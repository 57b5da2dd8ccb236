// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"errors"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// Create makes a load balancer or a group. What is there of it already is made as it should be, so that it may be
// asked for twice. Of a group it takes those networks and routers in whose switches and routers are there; Update
// says what is missing. It returns the resource as it is then.
//
// The error is an UnavailableError, a MissingError, a ConflictError, an InvalidError, or of the database or the
// caller's right to write; then nothing is known to have been written.
func (n *Northbound) Create(
	ctx context.Context, kind drivers.Kind, identity plan.Identity, attrs map[string]any,
) (plan.Observed, error) {
	r := Resource{kind, ID(kind, identity)}
	if kind == drivers.KindOVNLoadBalancerGroup {
		want := groupWant{identity: identity}
		want.take(attrs)
		return n.write(ctx, r, func(b *rowIndex, t *transaction) error {
			t.group(b, want)
			return nil
		})
	}
	want := &balancer{identity: identity}
	if err := want.take(attrs); err != nil {
		return plan.Observed{}, err
	}
	return n.write(ctx, r, func(b *rowIndex, t *transaction) error { return t.balancer(b, want) })
}

// Update changes what is given of a load balancer or a group; "description" is an identity as a text, of which
// another policy is taken over. What else differs is repaired with it. Where all that is left to do of a
// group waits for a row, the error is a MissingError; in all else it is as of Create, or a GoneError.
func (n *Northbound) Update(
	ctx context.Context, kind drivers.Kind, id string, attrs map[string]any,
) (plan.Observed, error) {
	r := Resource{kind, id}
	return n.write(ctx, r, func(b *rowIndex, t *transaction) error {
		if kind == drivers.KindOVNLoadBalancerGroup {
			return updateGroup(b, t, id, attrs)
		}
		rows := b.rows(id)
		if len(rows) == 0 {
			return &GoneError{ID: id}
		}
		want, _ := b.read(rows)
		want.identity = described(want.identity, attrs)
		if err := want.take(attrs); err != nil {
			return err
		}
		return t.balancer(b, want)
	})
}

func updateGroup(b *rowIndex, t *transaction, id string, attrs map[string]any) error {
	g, _ := b.groupRow(id)
	if g == nil {
		return &GoneError{ID: id}
	}
	want := groupWant{identity: described(g.identity, attrs), title: g.title}
	want.take(attrs)
	if missing := t.group(b, want); len(missing) > 0 && t.empty() {
		return &MissingError{Rows: missing}
	}
	return nil
}

// described is an identity with the policy of a description, if there is one.
func described(identity plan.Identity, attrs map[string]any) plan.Identity {
	text, _ := attrs["description"].(string)
	if other, ok := plan.Parse(nil, text); ok && other.Key() == identity.Key() {
		identity.Policy = other.Policy
	}
	return identity
}

func (g *groupWant) take(attrs map[string]any) {
	if title, ok := attrs["name"].(string); ok {
		g.title = clean(title)
	}
	for _, of := range []table{switches(), routers()} {
		ids, managed := attrs[of.attribute].([]any)
		if !managed {
			continue
		}
		if g.places == nil {
			g.places = map[string][]string{}
		}
		g.places[of.attribute] = []string{}
		for _, id := range ids {
			if text, ok := id.(string); ok && text != "" {
				g.places[of.attribute] = append(g.places[of.attribute], text)
			}
		}
		slices.Sort(g.places[of.attribute])
	}
}

// Delete deletes a load balancer or a group. That there is none is no error. The error is as of Create.
func (n *Northbound) Delete(ctx context.Context, kind drivers.Kind, id string) error {
	_, err := n.write(ctx, Resource{kind, id}, func(b *rowIndex, t *transaction) error {
		if kind == drivers.KindOVNLoadBalancer {
			t.removeBalancer(b, id)
			return nil
		}
		for uuid := range b.groupsOf[id] {
			t.removeGroup(b, uuid)
		}
		return nil
	})
	if gone := (*GoneError)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}

// empty says whether there is nothing to do.
func (t *transaction) empty() bool { return len(t.ops)+len(t.sets)+len(t.chassis) == 0 }

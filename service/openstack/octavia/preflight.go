// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// preflight decides whether a load balancer may go for another one to be made, as far as reading tells. Where that is
// blocked it stays, and another plan is made.
func (b *Backend) preflight(ctx context.Context, owner plan.Owner, step plan.Step) *backend.Failure {
	key := state.KeyOf(step.Kind, step.Identity)
	var (
		lb          plan.Observed
		wanted      map[string]any
		desired     string
		due, pinned bool
	)
	b.env.State.Update(func(tx *state.Tx) {
		o := tx.Object(owner)
		if o == nil {
			return
		}
		w := tx.Desire(o.ID, o.Set)
		for i := range w.Desired {
			d := &w.Desired[i]
			there, ok := tx.Cache.Find(d.Identity, d.Kind)
			if d.Kind == step.Kind && state.KeyOf(d.Kind, d.Identity) == key && ok && there.ID == step.ID {
				lb, due, pinned = there, true, HintsOf(d).Pinned
				wanted, desired = desiredFields(tx, w, d)
			}
		}
	})
	if !due {
		return nil // it is not desired any more, or it is there twice
	}
	current := currentFields(lb)
	if !pinned {
		unmet, err := b.unmet(ctx, lb, wanted, map[string]bool{lb.ID: true})
		if err != nil {
			return &backend.Failure{
				Phase: state.Failing, Backoff: true, Quiet: errors.Is(err, context.DeadlineExceeded), Err: err,
			}
		}
		if unmet.text != "" {
			blocking := block{desired: desired, current: current, holder: unmet.holder}
			blocking.err = fmt.Errorf("load balancer %s stays as it is: %s%s", lb.ID, b.origin(owner, unmet.value), unmet.text)
			b.env.State.Update(func(tx *state.Tx) {
				blocking.until = tx.Now().Add(b.env.Timing.Refusal)
				b.blocks[key] = blocking
			})
			return b.outcome.Replan(outcome.Refusal{Step: step, Err: blocking.err})
		}
	}
	b.env.State.Update(func(tx *state.Tx) {
		b.replacements[key] = replacement{current, partsOf(lb), step.Identity, lb.ID, tx.Now()}
	})
	return nil
}

// requirement is what a load balancer needs and is not met, and the value that it is about. The zero value is none.
type requirement struct {
	value, text string
	holder      *holder
}

// Unmet says, for people, what a load balancer of an owner with these attributes needs and is not met, as far as
// reading tells; "": nothing.
func (b *Backend) Unmet(ctx context.Context, owner plan.Owner, wanted map[string]any) (text string, err error) {
	unmet, err := b.unmet(ctx, plan.Observed{}, wanted, map[string]bool{})
	if err != nil || unmet.text == "" {
		return "", err
	}
	return b.origin(owner, unmet.value) + unmet.text, nil
}

// unmet checks for what another load balancer in place of one would be made of. Those that are seen go as well.
func (b *Backend) unmet(
	ctx context.Context, lb plan.Observed, wanted map[string]any, seen map[string]bool,
) (requirement, error) {
	differs := func(name string) bool {
		want := asText(wanted[name])
		return want != "" && want != asText(lb.Attrs[name])
	}
	if differs("provider") {
		provider := asText(wanted["provider"])
		names, err := b.client.Providers(ctx)
		if err != nil {
			return requirement{}, fmt.Errorf("checking whether the cloud has provider %s: %w", provider, err)
		}
		if !slices.Contains(names, provider) {
			text := fmt.Sprintf("the cloud has no provider %q, but %s", provider, strings.Join(names, ", "))
			return requirement{value: provider, text: text}, nil
		}
	}
	if unmet, err := b.unmetOffer(ctx, wanted, differs); err != nil || unmet.text != "" {
		return unmet, err
	}
	for _, of := range []struct {
		attribute string
		kind      drivers.Kind
	}{{"vip_network_id", drivers.KindNetwork}, {"vip_subnet_id", drivers.KindSubnet}, {"vip_port_id", drivers.KindPort}} {
		if value := asText(wanted[of.attribute]); differs(of.attribute) {
			found, err := b.networking.Get(ctx, of.kind, value)
			switch {
			case openstack.Classify(err) == openstack.ClassNotFound:
				return requirement{value: value, text: fmt.Sprintf("the cloud has no %s %q", of.kind, value)}, nil
			case err != nil:
				return requirement{}, fmt.Errorf("checking whether the cloud has %s %s: %w", of.kind, value, err)
			case of.kind == drivers.KindNetwork && len(asList(found.Attrs["subnets"])) == 0:
				return requirement{value: value, text: fmt.Sprintf("network %q has no subnet", value)}, nil
			}
		}
	}
	return b.addressConflict(ctx, lb, wanted, seen)
}

// unmetOffer checks the flavor and the availability zone that a load balancer is to have.
func (b *Backend) unmetOffer(
	ctx context.Context, wanted map[string]any, differs func(attribute string) bool,
) (requirement, error) {
	provider := asText(wanted["provider"])
	for _, of := range []struct {
		attribute, title string
		find             func(context.Context, string) (bool, string, error)
	}{
		{"flavor_id", "flavor of load balancers", b.client.Flavor},
		{"availability_zone", "availability zone of load balancers", b.client.Zone},
	} {
		value := asText(wanted[of.attribute])
		if value == "" || !differs(of.attribute) && !differs("provider") {
			continue
		}
		there, its, err := of.find(ctx, value)
		switch {
		case openstack.Classify(err) == openstack.ClassForbidden:
			return requirement{
				value: value, text: fmt.Sprintf("these credentials cannot see whether the cloud has a %s %q", of.title, value),
			}, nil
		case err != nil:
			return requirement{}, fmt.Errorf("checking whether the cloud has a %s %q: %w", of.title, value, err)
		case !there:
			return requirement{value: value, text: fmt.Sprintf("the cloud has no %s %q that is enabled", of.title, value)}, nil
		case provider == "ovn":
			return requirement{value: value, text: fmt.Sprintf("provider ovn has no %s", of.title)}, nil
		case its != "" && provider != "" && its != provider:
			text := fmt.Sprintf("%s %q is of provider %s, not of %s", of.title, value, its, provider)
			return requirement{value: value, text: text}, nil
		}
	}
	return requirement{}, nil
}

// origin says where an owner's object has a value from, as the beginning of a sentence.
func (b *Backend) origin(owner plan.Owner, value string) string {
	if value == "" {
		return ""
	}
	object, driver := b.env.Loop.Source(owner)
	var doc struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec map[string]any `json:"spec"`
	}
	if driver == "" || len(object.Raw) == 0 || object.Into(&doc) != nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(doc.Metadata.Annotations)) {
		if strings.EqualFold(strings.TrimSpace(doc.Metadata.Annotations[key]), value) {
			return fmt.Sprintf("annotation %s: ", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(doc.Spec)) {
		if asText(doc.Spec[key]) == value {
			return fmt.Sprintf("spec.%s: ", key)
		}
	}
	return fmt.Sprintf("the options of driver %s: ", driver)
}

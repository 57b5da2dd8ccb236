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

// Backend keeps the resources of the networking service. What it remembers beside the state is guarded by the state's
// lock.
type Backend struct {
	client  *Client
	env     backend.Env
	outcome outcome.Handler

	// full holds, per expandable subnet, how many subnets there were when the cloud last said that they are full.
	full map[state.IdentityKey]int
	// fullSubnets holds, per subnet that the cloud said is full, how many resources used it then.
	fullSubnets map[string]int
}

// NewBackend returns the backend of a client.
func NewBackend(client *Client, env backend.Env) *Backend {
	b := &Backend{
		client: client, env: env, outcome: outcome.Handler{Env: env, Dependants: client.Dependants},
		full: map[state.IdentityKey]int{}, fullSubnets: map[string]int{},
	}
	client.KnowRoom(b.room)
	return b
}

// Registration returns the backend with what it can do besides.
func (b *Backend) Registration() *backend.Registration {
	return &backend.Registration{
		Backend: b, Name: "Neutron", Reason: "Network", Required: true,
		Hooks: state.Hooks{
			Refine: b.refine, Arrived: b.arrived, Departed: b.departed, Document: b.document, Unsupported: b.client.Unsupported,
		},
		Find:  b.client.ListIdentity,
		Ready: ready,
		Lookup: func(ctx context.Context, kind drivers.Kind, idOrName string) (plan.Observed, error) {
			found, err := b.client.Lookup(ctx, kind, idOrName)
			return found, outcome.Lookup(err)
		},
		Remove: func(ctx context.Context, step plan.Step) error {
			err := b.remove(ctx, step)
			if step.Kind == drivers.KindSecurityGroup && openstack.Classify(err) == openstack.ClassInUse {
				if err = b.client.Leave(ctx, b.env.Cluster, step.ID); err == nil {
					err = b.remove(ctx, step)
				}
			}
			return b.outcome.Removed(ctx, step, err)
		},
	}
}

// ready tells of ports.
func ready(r plan.Observed) (reason, message string) {
	if r.Kind != drivers.KindPort {
		return "", ""
	}
	var addresses []string
	list, _ := r.Attrs["fixed_ips"].([]any)
	for _, item := range list {
		fixed, _ := item.(map[string]any)
		if address, ok := fixed["ip_address"].(string); ok {
			addresses = append(addresses, address)
		}
	}
	return "PortReady", fmt.Sprintf("port %s has the address %s", r.ID, strings.Join(addresses, " "))
}

// Kinds implements backend.Backend.
func (*Backend) Kinds() []plan.Descriptor { return Kinds() }

// List implements backend.Backend.
func (b *Backend) List(ctx context.Context, cluster string) ([]plan.Observed, error) {
	list, err := b.client.Observe(ctx, cluster)
	return list, outcome.List(err)
}

// Get implements backend.Backend.
func (b *Backend) Get(ctx context.Context, kind drivers.Kind, id string) (plan.Observed, error) {
	o, err := b.client.Get(ctx, kind, id)
	return o, outcome.NotFound(err)
}

// Apply implements backend.Backend.
func (b *Backend) Apply(ctx context.Context, _ plan.Owner, step *plan.Step) error {
	before := b.signals(*step)
	err := b.write(ctx, step)
	if err == nil {
		return nil
	}
	return b.refused(ctx, outcome.Refusal{Step: *step, Err: err, Missed: b.signals(*step) != before})
}

// signals says how often quota, or room for a port, may have become free so far.
func (b *Backend) signals(step plan.Step) (n uint64) {
	b.env.State.View(func(tx *state.Tx) { n = tx.Signals(outcome.Scarce(step)...) })
	return n
}

// refused brings what is known up to date with a refused step, and says what becomes of the object.
func (b *Backend) refused(ctx context.Context, r outcome.Refusal) *backend.Failure {
	if r.Step.Kind == drivers.KindFloatingIP && r.Step.Op == plan.Create {
		if f := b.existingFloatingIP(ctx, r); f != nil {
			return f
		}
	}
	if openstack.Classify(r.Err) == openstack.ClassSubnetFull && !r.Missed { // otherwise what is full now may have room
		r.Note = b.markFull(r.Step)
	}
	return b.outcome.Handle(ctx, r)
}

// write asks the cloud for what a step says. A create may give the step further attributes.
func (b *Backend) write(ctx context.Context, step *plan.Step) error {
	switch step.Op {
	case plan.Create:
		return b.create(ctx, step)
	case plan.Update:
		made, err := b.client.Update(ctx, step.Kind, step.ID, step.Revision, step.Attrs)
		if err == nil {
			b.env.State.Update(func(tx *state.Tx) { tx.Arrive(made) })
		}
		return err
	case plan.Tag:
		return b.tag(ctx, *step)
	case plan.Attach:
		router, _ := step.Attrs["router_id"].(string)
		if err := b.client.Attach(ctx, router, step.ID); err != nil {
			return err
		}
		attached, err := b.client.Get(ctx, step.Kind, step.ID) // not one that began before
		if err == nil {
			b.env.State.Update(func(tx *state.Tx) { tx.Arrive(attached) })
		}
		return err
	case plan.Delete, plan.Detach:
		if err := b.remove(ctx, *step); err != nil {
			return err
		}
		b.env.State.Update(func(tx *state.Tx) { tx.Depart(step.Kind, step.ID) })
		return nil
	case plan.Failover:
	}
	return backend.Permanentf("nothing of kind %s can be %sed", step.Kind, step.Op)
}

// create makes a resource. A port that names no addresses is placed: see place. Where its subnet is full and another
// one may have room, that is tried at once. The step has the attributes of the last try afterwards, and the id of
// what was made.
func (b *Backend) create(ctx context.Context, step *plan.Step) error {
	attrs := step.Attrs
	for range plan.MaxExpand {
		var (
			placed  []plan.Observed
			pending plan.Observed
			before  uint64
		)
		b.env.State.Update(func(tx *state.Tx) {
			placed = b.place(tx, step.Kind, attrs)
			step.Attrs = withAddresses(attrs, placed)
			pending = tx.Cache.Begin(*step)
			before = tx.Signals(outcome.Scarce(*step)...)
		})
		made, err := b.client.Create(ctx, step.Kind, step.Identity, step.Attrs)
		elsewhere := false
		b.env.State.Update(func(tx *state.Tx) {
			if err == nil {
				tx.Arrive(made) // before it ceases to be pending: what it uses must not look unused in between
				wakeNext(tx, *step)
			}
			tx.Cache.End(pending)
			tx.Wake(state.ByGone(pending.ID))
			if openstack.Classify(err) == openstack.ClassSubnetFull && tx.Signals(outcome.Scarce(*step)...) == before {
				elsewhere = b.noteFull(tx, attrs, placed)
			}
		})
		if !elsewhere {
			step.ID = made.ID
			return err
		}
	}
	return fmt.Errorf("none of the %d subnets that were tried has room", plan.MaxExpand)
}

// Make carries out a create like Apply, and concludes nothing from a refusal: nobody waits for what is made.
func (b *Backend) Make(ctx context.Context, step *plan.Step) error { return b.create(ctx, step) }

// Change changes attributes of a port at any revision, and returns what came of it.
func (b *Backend) Change(ctx context.Context, id string, attrs map[string]any) (plan.Observed, error) {
	return b.client.Update(ctx, drivers.KindPort, id, 0, attrs)
}

// Retag replaces all tags of a port.
func (b *Backend) Retag(ctx context.Context, id string, tags []string) error {
	return b.client.ReplaceTags(ctx, drivers.KindPort, id, tags)
}

// Idle says whether a request that is made now waits for no other.
func (b *Backend) Idle() bool { return b.client.idle() }

// wakeNext lets others that wait for quota or for room try as well, since there was some: two, who wake four.
func wakeNext(tx *state.Tx, step plan.Step) {
	tx.WakeNext(state.ByQuota(step.Kind))
	if network, ok := step.Attrs["network_id"].(string); ok && step.Kind == drivers.KindPort {
		tx.WakeNext(outcome.ByRoom(network))
	}
}

// remove deletes a resource, or detaches it, which deletes it too. A security group's rule goes before what waits: its
// end closes something for all members of the group, of whom each may have a request in the queue.
func (b *Backend) remove(ctx context.Context, step plan.Step) error {
	switch {
	case step.Op == plan.Detach:
		router, _ := step.Attrs["router_id"].(string)
		return b.client.Detach(ctx, router, step.ID)
	case step.Kind == drivers.KindSecurityGroupRule:
		ctx = openstack.Urgent(ctx)
	}
	return b.client.Delete(ctx, step.Kind, step.ID)
}

// tag changes a resource's tags. It has another revision then, which is read when it is needed: an update that comes
// too late is told so.
func (b *Backend) tag(ctx context.Context, step plan.Step) error {
	if remove, _ := step.Attrs["remove"].([]string); len(remove) > 0 {
		if err := b.client.RemoveTags(ctx, step.Kind, step.ID, remove); err != nil {
			return err
		}
	}
	missing, _ := step.Attrs["tags"].([]string)
	if err := b.client.AddTags(ctx, step.Kind, step.ID, missing); err != nil {
		return err
	}
	b.env.State.Update(func(tx *state.Tx) {
		if known, ok := tx.Cache.Get(step.Kind, step.ID); ok {
			tx.Cache.Put(plan.Retagged(known, step))
		}
	})
	return nil
}

// refine prepares what an owner wants for the plan.
func (b *Backend) refine(tx *state.Tx, w *state.Want) {
	for i := range w.Desired {
		switch d := &w.Desired[i]; d.Kind { //nolint:exhaustive // to the others there is nothing to add
		case drivers.KindSubnet:
			if n, ok := b.full[state.KeyOf(d.Kind, d.Identity)]; ok {
				d.Hints = SubnetHints{Full: n >= expansions(tx, d.Identity)}
			}
		case drivers.KindFloatingIP:
			d.Tags = marks(tx, w.Owner)
			if there, ok := tx.Cache.Find(d.Identity, d.Kind); ok && wasFound(there) {
				d.Identity.Policy = drivers.Retain
			}
		}
	}
	expandInterfaces(tx, w)
}

// arrived wakes who waits for room when a subnet is there.
func (*Backend) arrived(tx *state.Tx, before *plan.Observed, now plan.Observed) {
	if now.Kind == drivers.KindSubnet && (before == nil || !sameAttrs(*before, now)) {
		room := outcome.ByRoom(textOf(now.Attrs["network_id"]))
		tx.Signal(room)
		tx.Wake(room)
	}
}

// departed wakes who waits for quota, or for room, when a resource is gone. The rules of a security group go with it.
func (*Backend) departed(tx *state.Tx, gone plan.Observed) {
	tx.WakeNext(state.ByQuota(gone.Kind))
	switch gone.Kind { //nolint:exhaustive // nothing else hangs on the others
	case drivers.KindPort:
		tx.WakeNext(outcome.ByRoom(textOf(gone.Attrs["network_id"])))
	case drivers.KindNetwork:
		tx.ForgetSignals(outcome.ByRoom(gone.ID))
	case drivers.KindSecurityGroup:
		for _, rule := range tx.Cache.Users(gone.ID, drivers.KindSecurityGroupRule) {
			if rule.Attrs["security_group_id"] == gone.ID {
				tx.Depart(rule.Kind, rule.ID)
			}
		}
	}
}

// document renders the documents of the subnets of a port's addresses, IPv4 first: the first one, or all.
func (*Backend) document(
	tx *state.Tx, o plan.Observed, attribute string,
) (doc any, missing []state.ResourceKey, handled bool) {
	if attribute != "subnet" && attribute != "subnets" {
		return nil, nil, false
	}
	list := slices.Clone(listOf(o.Attrs["fixed_ips"]))
	slices.SortStableFunc(list, func(a, b any) int { return version(a) - version(b) })
	var docs []any
	for _, element := range list {
		key := state.ResourceKey{Kind: drivers.KindSubnet, ID: textOf(plan.Field(element, "subnet_id"))}
		subnet, known := tx.Read(key)
		if !known {
			missing = append(missing, key)
			continue
		}
		docs = append(docs, drivers.Document(drivers.KindSubnet, subnet.Attrs))
	}
	switch {
	case len(docs) == 0 || len(missing) > 0:
		return nil, missing, true
	case attribute == "subnet":
		return docs[0], nil, true
	}
	return docs, nil, true
}

// version is the IP version of an address of a port.
func version(fixed any) int {
	for _, c := range textOf(plan.Field(fixed, "ip_address")) {
		if c == ':' {
			return 6
		}
	}
	return 4
}

func listOf(value any) []any {
	list, _ := value.([]any)
	return list
}

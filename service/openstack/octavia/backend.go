// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Config is how the backend behaves. The zero value of a duration means its default.
type Config struct {
	// ActivationTimeout is how long a load balancer may be busy before people are told.
	ActivationTimeout time.Duration
	// PollInterval is the shortest time between two polls of busy load balancers.
	PollInterval time.Duration
	// StillAfter is how long the parts of a load balancer may all be pending without any progress before the load balancer
	// is given up.
	StillAfter time.Duration
}

// Validate fills in defaults and says what cannot be.
func (c *Config) Validate() error {
	if c.ActivationTimeout < 0 || c.PollInterval < 0 || c.StillAfter < 0 {
		return errors.New("octavia: a duration must not be negative")
	}
	c.setDefaults()
	return nil
}

func (c *Config) setDefaults() {
	c.ActivationTimeout = cmp.Or(c.ActivationTimeout, 5*time.Minute)
	c.PollInterval = cmp.Or(c.PollInterval, 200*time.Millisecond)
	c.StillAfter = cmp.Or(c.StillAfter, 20*time.Second)
}

// AddressLookup is what the backend asks of the networking service before a load balancer is deleted for another one.
// It is a neutron.Client.
type AddressLookup interface {
	Get(ctx context.Context, kind drivers.Kind, id string) (plan.Observed, error)
	// PortsAt lists the ports with an address on a subnet, or on a network where no subnet is named, or anywhere.
	PortsAt(ctx context.Context, networkID, subnetID, address string) ([]plan.Observed, error)
}

// Backend keeps load balancers. What it remembers beside the state is guarded by the state's lock; nothing of it is
// needed after a restart.
type Backend struct {
	client     *Client
	networking AddressLookup
	env        backend.Env
	config     Config
	outcome    outcome.Handler
	pollNow    chan struct{} // a load balancer may be busy now

	providers map[string]*capabilities
	repairs   map[state.IdentityKey]*repairRecord
	busy      map[string]*busyPeriod // by id
	// incremental are those whose parts were refused when they were asked for together, and until when that is remembered.
	incremental map[state.IdentityKey]time.Time
	// refusedParts are the parts whose creation was refused for good.
	refusedParts map[partKey]partRefusal
	// quotaExhausted is when the quota of load balancers was last seen to be exhausted.
	quotaExhausted time.Time
	// blocks keep load balancers from being replaced, and replacements are what those that go for others were made of.
	blocks       map[state.IdentityKey]block
	replacements map[state.IdentityKey]replacement
	// lifted are load balancers whose tags show a block that no longer counts, since something else was desired of them,
	// by id.
	lifted map[state.IdentityKey]string
	// unknown are creates whose outcome is unknown again and again.
	unknown map[state.IdentityKey]unknownOutcomes
	// missed says that a Service's owner was told that there is no load balancing service though load balancers are
	// desired.
	missed bool
	// polling says that what arrives is what a poll has found, which is no reason for another one.
	polling bool
}

// NewBackend returns the backend of a client.
func NewBackend(client *Client, networking AddressLookup, env backend.Env, c Config) *Backend {
	c.setDefaults()
	return &Backend{
		client: client, networking: networking, env: env, config: c,
		outcome:   outcome.Handler{Env: env, Dependants: noDependants},
		pollNow:   make(chan struct{}, 1),
		providers: map[string]*capabilities{}, repairs: map[state.IdentityKey]*repairRecord{},
		busy: map[string]*busyPeriod{}, incremental: map[state.IdentityKey]time.Time{},
		refusedParts: map[partKey]partRefusal{},
		blocks:       map[state.IdentityKey]block{}, replacements: map[state.IdentityKey]replacement{},
		lifted: map[state.IdentityKey]string{}, unknown: map[state.IdentityKey]unknownOutcomes{},
	}
}

// noDependants: nothing keeps a load balancer from being deleted.
func noDependants(context.Context, drivers.Kind, string) ([]string, error) { return nil, nil }

// Registration returns the backend with what it can do besides.
func (b *Backend) Registration() *backend.Registration {
	return &backend.Registration{
		Backend: b, Name: "the load balancing service", Reason: reason,
		Hooks:   state.Hooks{Refine: b.refine, Arrived: b.arrived, Departed: b.departed, Document: document},
		Review:  b.review,
		Refused: b.refusedBefore,
		Due:     b.due,
		Listed:  b.listed,
		Find: func(ctx context.Context, _ drivers.Kind, identity plan.Identity) ([]plan.Observed, error) {
			return b.client.ListIdentity(ctx, identity)
		},
		Lookup: func(ctx context.Context, _ drivers.Kind, idOrName string) (plan.Observed, error) {
			found, err := b.client.Lookup(ctx, idOrName)
			return found, outcome.Lookup(err)
		},
		Remove: func(ctx context.Context, step plan.Step) error {
			return b.outcome.Removed(ctx, step, b.client.Delete(ctx, step.ID))
		},
		Run:   b.pollLoop,
		Ready: ready,
	}
}

// ready tells of load balancers.
func ready(r plan.Observed) (reason, message string) {
	vip, _ := r.Attrs["vip_address"].(string)
	return "LoadBalancerReady", fmt.Sprintf("load balancer %s serves %s", r.ID, vip)
}

// reason is that of Events about load balancers.
const reason = "LoadBalancer"

// Kinds implements backend.Backend.
func (*Backend) Kinds() []plan.Descriptor { return Kinds() }

// List implements backend.Backend.
func (b *Backend) List(ctx context.Context, cluster string) ([]plan.Observed, error) {
	list, err := b.client.List(ctx, cluster)
	if errors.Is(err, ErrNoBalancing) {
		return nil, noService{err}
	}
	return list, outcome.List(err)
}

// noService is the error of a list in a cloud that has no load balancing service.
type noService struct{ error }

func (n noService) Unwrap() error { return n.error }

// Is implements what errors.Is asks for.
func (noService) Is(target error) bool { return target == backend.ErrAbsent }

// Get implements backend.Backend.
func (b *Backend) Get(ctx context.Context, _ drivers.Kind, id string) (plan.Observed, error) {
	lb, err := b.client.Get(ctx, id)
	return lb, outcome.NotFound(err)
}

// Room says for how many more load balancers there is room in the quota, where that is bounded.
func (b *Backend) Room(ctx context.Context) (room int, bounded bool, err error) {
	return b.client.QuotaRoom(ctx)
}

// Reachable says why the load balancing service cannot be asked now. Credentials that may not see its providers can use
// it.
func (b *Backend) Reachable(ctx context.Context) error {
	if _, err := b.client.Providers(ctx); err != nil && openstack.Classify(err) != openstack.ClassForbidden {
		return err
	}
	return nil
}

// Apply implements backend.Backend.
func (b *Backend) Apply(ctx context.Context, owner plan.Owner, step *plan.Step) error {
	if step.Op == plan.Delete && step.Part == nil {
		if f := b.preflight(ctx, owner, *step); f != nil {
			f.NotTried = true
			return f
		}
	}
	var before, after uint64
	b.env.State.View(func(tx *state.Tx) { before = tx.Signals(state.ByQuota(step.Kind)) })
	err := b.write(ctx, step)
	if err == nil {
		return nil
	}
	b.env.State.View(func(tx *state.Tx) { after = tx.Signals(state.ByQuota(step.Kind)) })
	return b.refused(ctx, outcome.Refusal{Step: *step, Err: err, Missed: before != after})
}

// write asks the service for what a step says. A create may give the step further attributes, and gives it the id of
// what was made.
func (b *Backend) write(ctx context.Context, step *plan.Step) error {
	if step.ID != "" {
		return b.change(ctx, *step)
	}
	if step.Op != plan.Create {
		return nil
	}
	var creating plan.Observed
	b.env.State.Update(func(tx *state.Tx) { creating = tx.Cache.Begin(*step) })
	made, err := b.replace(ctx, step)
	b.env.State.Update(func(tx *state.Tx) {
		if err == nil {
			tx.Arrive(made) // before it ceases to be pending: what it uses must not look unused in between
			b.wakeNext(tx)
			if len(asList(step.Attrs["additional_vips"])) > len(asList(made.Attrs["additional_vips"])) {
				b.capabilitiesOf(provider(made)).noAdditionalVIPs = true
			}
		}
		tx.Cache.End(creating)
		tx.Wake(state.ByGone(creating.ID))
	})
	if err == nil {
		step.ID = made.ID
	}
	return err
}

// wakeNext lets those that wait for quota try: first those who have a reservation, see reservedFor.
func (b *Backend) wakeNext(tx *state.Tx) {
	var first []plan.Owner
	for _, old := range b.replacements {
		first = append(first, old.identity.Owner)
	}
	tx.WakeNext(state.ByQuota(drivers.KindLoadBalancer), first...)
}

// refine prepares what load balancers should be for the plan.
func (b *Backend) refine(tx *state.Tx, w *state.Want) {
	for i := range w.Desired {
		d := &w.Desired[i]
		if d.Kind != drivers.KindLoadBalancer {
			continue
		}
		var hints Hints
		hints.Repair, hints.Resting = b.mayRepair(tx, d)
		placeMembers(tx, w, d)
		if there, ok := tx.Cache.Find(d.Identity, d.Kind); ok {
			hints.Unmade = b.capabilitiesOf(provider(there)).noAdditionalVIPs
		}
		hints.Pinned = b.pin(tx, w, d)
		d.Hints = hints
	}
	for id, why := range b.resting(tx, w.Owner) {
		if w.Blocked == nil {
			w.Blocked = map[string]string{}
		}
		w.Blocked[id] = why
	}
}

// arrived keeps the account of a load balancer that is put into the cache.
func (b *Backend) arrived(tx *state.Tx, before *plan.Observed, now plan.Observed) {
	b.replaced(now)
	var old plan.Observed
	if before != nil {
		old = *before
	}
	b.noteBusy(tx, old, now)
	if !b.polling {
		tx.After(b.requestPoll)
	}
}

// departed wakes who waits for quota when a load balancer has gone, unless its place is its successor's.
func (b *Backend) departed(tx *state.Tx, gone plan.Observed) {
	if _, replaced := b.replacements[state.KeyOf(gone.Kind, gone.Identity)]; !replaced {
		b.wakeNext(tx)
	}
}

// document renders the documents of a load balancer's parts: of all pools or listeners, or of the first pool.
func document(_ *state.Tx, o plan.Observed, attribute string) (doc any, missing []state.ResourceKey, handled bool) {
	switch attribute {
	case "pools", "listeners":
		return drivers.PartDocuments(attribute, o.Attrs), nil, true
	case "pool":
		if pools := drivers.PartDocuments("pools", o.Attrs); len(pools) > 0 {
			return pools[0], nil, true
		}
		return nil, nil, true
	}
	return nil, nil, false
}

// asText is a value as a text without spaces around it; "" where it is none.
func asText(value any) string {
	text, _ := value.(string)
	return strings.TrimSpace(text)
}

// asList is a value as a list; nil where it is none.
func asList(value any) []any {
	list, _ := value.([]any)
	return list
}

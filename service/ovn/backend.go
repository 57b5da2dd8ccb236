// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Database is OVN's northbound database, as its backend uses it; it is a Northbound. Its errors are those of this
// package.
type Database interface { //nolint:interfacebloat // all that is asked of a database
	List(kind drivers.Kind) ([]plan.Observed, error)
	Get(kind drivers.Kind, id string) (plan.Observed, bool, error)
	Create(ctx context.Context, kind drivers.Kind, identity plan.Identity, attrs map[string]any) (plan.Observed, error)
	Update(ctx context.Context, kind drivers.Kind, id string, attrs map[string]any) (plan.Observed, error)
	Delete(ctx context.Context, kind drivers.Kind, id string) error
	// Templates says whether the database can have what differs by chassis.
	Templates() bool
}

// Backend keeps load balancers and their groups in OVN's northbound database. They are observed, planned and applied
// like all other resources. Only what is here differs:
//
//	database unavailable   what is known stays as it is, what concerns it waits, all else goes on
//	changed by others      told at once by the database, and repaired; the drift check finds nothing new there
//	Neutron's row missing  a switch or router that has to join a group: waited for, woken by its arrival
//	VIP conflict           another Service of the same group has it: the other one is told, and woken when it is free
//	none configured        who desires load balancers there is told so
//
// What it remembers beside the state is guarded by the state's lock.
type Backend struct {
	database Database // nil: none is configured
	env      backend.Env

	observed bool // the cloud was observed once: before, nothing that the database tells is taken over
	told     bool // the database has told something before
}

// NewBackend returns the backend of a database; nil: none is configured.
func NewBackend(n Database, env backend.Env) *Backend { return &Backend{database: n, env: env} }

// backendName names the database for people.
const backendName = "OVN's northbound database"

// Registration returns the backend with what it can do besides.
func (b *Backend) Registration() *backend.Registration {
	unconfigured := ""
	if b.database == nil {
		unconfigured = "[ovn] nb_connection names no database; if driver kubeproxy ever served this cluster, name it"
	}
	return &backend.Registration{
		Backend: b, Name: backendName, Reason: "LoadBalancer", Follows: true, Unconfigured: unconfigured,
		Listed: b.listed, Ready: ready, Review: b.review,
		Remove: func(ctx context.Context, step plan.Step) error {
			if b.database == nil {
				return noDatabase()
			}
			return b.database.Delete(ctx, step.Kind, step.ID)
		},
	}
}

// review says where an object has backends for each chassis, and the database cannot have that.
func (b *Backend) review(_ *state.Tx, o *state.Object, p *plan.Plan) backend.Review {
	for _, r := range o.Set.Resources {
		lb, ok := r.Spec.(drivers.OVNLoadBalancer)
		local := func(v drivers.OVNVIP) bool { return len(v.Chassis) > 0 }
		if ok && b.database != nil && slices.ContainsFunc(lb.VIPs, local) && !b.database.Templates() {
			p.Notices = append(p.Notices, plan.Notice{
				Reason: "TrafficPolicyNotServed",
				Message: "clients are served by the endpoints of all nodes, not only of their own: OVN is older than 22.12, its " +
					"northbound database has no table Chassis_Template_Var",
			})
		}
	}
	return backend.Review{}
}

// ready tells of load balancers.
func ready(r plan.Observed) (reason, message string) {
	if r.Kind != drivers.KindOVNLoadBalancer {
		return "", ""
	}
	var addresses []string
	vips, _ := r.Attrs["vips"].([]any)
	for _, item := range vips {
		vip, _ := item.(map[string]any)
		if address, ok := vip["address"].(string); ok && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return "LoadBalancerReady", "OVN serves " + strings.Join(addresses, " ")
}

// noDatabase is what those are told who desire load balancers in OVN where there is no database.
func noDatabase() error {
	return backend.Permanentf("there is no database to keep it in: " +
		"set [ovn] nb_connection to the servers of OVN's northbound database")
}

// Kinds implements backend.Backend.
func (*Backend) Kinds() []plan.Descriptor { return Kinds() }

// List implements backend.Backend. Where no database is configured there is nothing.
func (b *Backend) List(context.Context, string) ([]plan.Observed, error) { return b.list() }

func (b *Backend) list() ([]plan.Observed, error) {
	if b.database == nil {
		return nil, nil
	}
	var all []plan.Observed
	for _, d := range Kinds() {
		list, err := b.database.List(d.Kind)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// Get implements backend.Backend. An error is a backend.Failure, which says what it means for who needs the resource.
func (b *Backend) Get(_ context.Context, kind drivers.Kind, id string) (plan.Observed, error) {
	if b.database == nil {
		return plan.Observed{}, noDatabase()
	}
	o, there, err := b.database.Get(kind, id)
	switch {
	case err != nil:
		f := b.classify(err)
		f.Err = err
		return plan.Observed{}, f
	case !there:
		return plan.Observed{}, backend.ErrNotFound
	}
	return o, nil
}

// Apply implements backend.Backend.
func (b *Backend) Apply(ctx context.Context, _ plan.Owner, step *plan.Step) error {
	if err := b.write(ctx, step); err != nil {
		return b.refused(ctx, *step, err)
	}
	return nil
}

// write has the database keep what a step says, and gives a create the id of what was made.
func (b *Backend) write(ctx context.Context, step *plan.Step) error {
	switch {
	case b.database == nil:
		return noDatabase()
	case step.ID == "":
		return b.create(ctx, step)
	case step.Op == plan.Delete:
		if err := b.database.Delete(ctx, step.Kind, step.ID); err != nil {
			return err
		}
		b.env.State.Update(func(tx *state.Tx) { tx.Depart(step.Kind, step.ID) })
		return nil
	}
	now, err := b.database.Update(ctx, step.Kind, step.ID, step.Attrs)
	if err == nil {
		b.env.State.Update(func(tx *state.Tx) { tx.Arrive(now) })
	}
	return err
}

func (b *Backend) create(ctx context.Context, step *plan.Step) error {
	var pending plan.Observed
	b.env.State.Update(func(tx *state.Tx) { pending = tx.Cache.Begin(*step) })
	made, err := b.database.Create(ctx, step.Kind, step.Identity, step.Attrs)
	b.env.State.Update(func(tx *state.Tx) {
		if err == nil {
			tx.Arrive(made) // before it ceases to be pending: what it uses must not look unused in between
		}
		tx.Cache.End(pending)
		tx.Wake(state.ByGone(pending.ID))
	})
	step.ID = made.ID
	return err
}

// refused brings what is known up to date with a refused step, and says what becomes of the object.
func (b *Backend) refused(ctx context.Context, step plan.Step, err error) *backend.Failure {
	var gone *GoneError
	if !errors.As(err, &gone) || step.ID == "" {
		return b.failure(step, err)
	}
	if _, rerr := b.env.Loop.Reread(ctx, step.Kind, step.ID); rerr != nil {
		return b.failure(step, rerr)
	}
	f := b.failure(step, err)
	f.Replan = true
	return f
}

func (b *Backend) failure(step plan.Step, err error) *backend.Failure {
	f := b.classify(err)
	f.Err = &backend.StepError{Step: step, Err: err}
	return f
}

// classify says what an error means for the object. A failure in its chain keeps its meaning.
func (b *Backend) classify(err error) *backend.Failure {
	var (
		known       *backend.Failure
		unavailable *UnavailableError
		missing     *MissingError
		invalid     *InvalidError
		taken       *ConflictError
	)
	slow := b.env.Timing.SlowRetry
	switch {
	case errors.As(err, &known):
		f := *known
		return &f
	case errors.As(err, &unavailable):
		wait := []state.Key{state.ByBackend(backendName)}
		return &backend.Failure{Phase: state.Waiting, RequeueAfter: slow, Wait: wait, Quiet: true}
	case errors.As(err, &missing):
		f := &backend.Failure{Phase: state.Waiting, RequeueAfter: slow, Quiet: true}
		for _, row := range missing.Rows { // any of them is something to go on with
			f.Wait = append(f.Wait, byRow(row))
		}
		return f
	case errors.As(err, &taken):
		return &backend.Failure{Phase: state.Waiting, RequeueAfter: slow, Wait: []state.Key{state.ByGone(taken.Holder)}}
	case errors.As(err, &invalid):
		return &backend.Failure{Phase: state.Terminal}
	}
	return &backend.Failure{Phase: state.Failing, Backoff: true}
}

// byRow is a row that others make.
func byRow(name string) state.Key { return state.Key{What: "row", Name: name} }

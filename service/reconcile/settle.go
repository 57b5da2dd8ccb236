package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// How long a key rests that only something outside can free, in case its wake-up never comes.
const (
	slowTry     = 30 * time.Second
	terminalTry = 10 * time.Minute
)

// outputs are what an owner's source object should carry.
type outputs struct {
	annotations map[string]string
	labels      map[string]string
	// missing says, for people, what cannot be written yet; waits is what that waits for.
	missing []string
	waits   []waitKey
	// unknown are subnets that a document needs and that nobody has read yet.
	unknown []string
}

// outputsOf works out an owner's outputs. The store is locked.
func (s *store) outputsOf(w *want, o *owner) outputs {
	out := outputs{annotations: map[string]string{}, labels: map[string]string{}}
	resolve := s.resolve(w)
	for _, output := range o.set.Outputs {
		text, ok := output.Text.Literal, true
		var ref *drivers.Ref
		switch {
		case output.Document != nil:
			ref = output.Document
			text, ok = s.document(w, *ref, &out)
		case output.Text.Ref != nil:
			ref = output.Text.Ref
			var v any
			if v, ok = resolve(*ref); ok {
				text = fmt.Sprint(v)
			}
		}
		if !ok {
			out.missing = append(out.missing, fmt.Sprintf("%s %s waits for the %s", output.Kind, output.Key, ref))
			out.waits = append(out.waits, waitKeys(w, plan.Wait{Ref: ref})...)
			continue
		}
		if output.Kind == drivers.Label {
			out.labels[output.Key] = text
		} else {
			out.annotations[output.Key] = text
		}
	}
	return out
}

// document renders the JSON document of a resource.
func (s *store) document(w *want, ref drivers.Ref, out *outputs) (string, bool) {
	o, ok := s.referred(w, ref)
	if !ok {
		return "", false
	}
	var doc any
	switch ref.Attribute {
	case "subnet", "subnets":
		subnets, ok := s.subnetsOf(o, out)
		if !ok || len(subnets) == 0 {
			return "", false
		}
		doc = subnets
		if ref.Attribute == "subnet" {
			doc = subnets[0]
		}
	default:
		doc = drivers.Document(o.Kind, o.Attrs)
	}
	text, err := json.Marshal(doc)
	return string(text), err == nil
}

// subnetsOf returns the documents of the subnets of a port's addresses, IPv4 first.
func (s *store) subnetsOf(port plan.Observed, out *outputs) ([]any, bool) {
	list, _ := port.Attrs["fixed_ips"].([]any)
	type fixed struct{ subnet, address string }
	var all []fixed
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			subnet, _ := m["subnet_id"].(string)
			address, _ := m["ip_address"].(string)
			all = append(all, fixed{subnet, address})
		}
	}
	slices.SortStableFunc(all, func(a, b fixed) int {
		return cmp.Compare(strings.Count(a.address, ":"), strings.Count(b.address, ":"))
	})
	var docs []any
	for _, f := range all {
		o, ok := s.subnet(f.subnet)
		if !ok {
			out.unknown = append(out.unknown, f.subnet)
			continue
		}
		docs = append(docs, drivers.Document(drivers.KindSubnet, o.Attrs))
	}
	return docs, len(docs) == len(all)
}

func (s *store) subnet(id string) (plan.Observed, bool) {
	if e, ok := s.cloud.entries[resourceKey{drivers.KindSubnet, id}]; ok {
		return e.Observed, true
	}
	o, ok := s.foreign[id]
	return o, ok
}

// readForeign reads subnets that are not ours but that our ports have addresses of.
func (e *Engine) readForeign(ctx context.Context, ids []string) error {
	for _, id := range ids {
		o, err := e.cloud.Get(ctx, drivers.KindSubnet, id)
		if err != nil {
			return fmt.Errorf("reading subnet %s of a port's address: %w", id, err)
		}
		e.store.mu.Lock()
		e.store.foreign[id] = o
		e.store.mu.Unlock()
	}
	return nil
}

// settle ends a pass in which nothing failed: outputs are written, and the owner is done or waits.
func (e *Engine) settle(ctx context.Context, w *watcher, o *owner, meta watch.Meta, out outcome) result {
	if o.gone {
		return e.settleGone(o, out)
	}
	if w != nil && len(out.outputs.missing) == 0 {
		if err := e.writeOutputs(ctx, w, o, meta, out.outputs); err != nil {
			if errors.Is(err, writeback.ErrGone) {
				return result{} // its deletion, or its successor, is on the way
			}
			return e.settleErrors(o, []error{fmt.Errorf("writing annotations on %s: %w", o.target, err)})
		}
	}
	if len(out.conflicts) > 0 {
		e.setPhase(o, Waiting, out.conflicts, 0)
		e.event(o, "Conflict", strings.Join(out.conflicts, "; "))
		return result{}
	}
	messages := slices.Concat(out.messages, out.outputs.missing)
	if len(messages) > 0 {
		slices.Sort(messages)
		e.setPhase(o, Waiting, slices.Compact(messages), 0)
		return result{}
	}
	e.setPhase(o, Done, nil, 0)
	return result{}
}

// settleGone ends a pass for an owner whose source object is gone: it is forgotten once it has nothing left.
func (e *Engine) settleGone(o *owner, out outcome) result {
	e.store.mu.Lock()
	doubt := time.Duration(0)
	now := e.clock.Now()
	for key, until := range e.store.doubts {
		if key.key.Driver == o.id.Driver && key.key.UID == o.id.UID {
			if until.After(now) {
				doubt = max(doubt, until.Sub(now))
			}
			delete(e.store.doubts, key)
		}
	}
	left := 0
	for key := range e.store.cloud.byOwner[o.id] {
		if e.store.cloud.entries[key].Identity.Policy != drivers.Retain {
			left++
		}
	}
	if left == 0 {
		e.store.forget(o)
	}
	e.store.mu.Unlock()
	if doubt > 0 {
		// A create of it was cut and may still commit: what comes then is found by the drift check and swept.
		e.driftAfter(doubt)
	}
	if left > 0 {
		e.setPhase(o, Waiting, out.messages, slowTry)
		return result{again: slowTry}
	}
	return result{}
}

// writeOutputs writes outputs where they differ from what the source object carries.
func (e *Engine) writeOutputs(ctx context.Context, w *watcher, o *owner, meta watch.Meta, out outputs) error {
	if !writeback.Differs(meta, w.manager, out.annotations, out.labels) {
		return nil
	}
	hash := hashOf(out)
	e.store.mu.Lock()
	last := o.wrote
	e.store.mu.Unlock()
	if last.hash == hash && last.version == meta.ResourceVersion {
		return nil // the cache has not caught up with our own write yet
	}
	t := writeback.Target{
		GVR: o.target.watch.GVR, Kind: o.target.watch.Kind, Namespace: o.target.namespace, Name: o.target.name, UID: o.target.uid,
	}
	if err := e.writeback.Apply(ctx, t, w.manager, out.annotations, out.labels); err != nil {
		return err
	}
	e.metrics.written(w.name)
	e.store.mu.Lock()
	o.wrote = written{hash, meta.ResourceVersion}
	e.store.mu.Unlock()
	return nil
}

func hashOf(out outputs) uint64 {
	h := fnv.New64a()
	text, err := json.Marshal([]any{out.annotations, out.labels})
	if err == nil {
		_, _ = h.Write(text)
	}
	_, _ = io.WriteString(h, "raven")
	return h.Sum64()
}

// settleErrors ends a pass in which something failed: one switch decides what happens next.
func (e *Engine) settleErrors(o *owner, errs []error) result {
	phase, next := Terminal, result{}
	var extra []waitKey
	messages := make([]string, 0, len(errs))
	for _, err := range errs {
		messages = append(messages, err.Error())
		p, r, waits := verdict(err)
		extra = append(extra, waits...)
		next = worse(next, r)
		if rank(p) < rank(phase) {
			phase = p
		}
	}
	slices.Sort(messages)
	messages = slices.Compact(messages)
	if len(extra) > 0 {
		e.store.mu.Lock()
		e.store.wait(o, slices.Concat(o.waits, extra))
		e.store.mu.Unlock()
	}
	e.setPhase(o, phase, messages, next.again)
	level := e.log.Warn
	if phase == Waiting {
		level = e.log.Debug
	}
	level("not settled", "object", o.target.String(), "driver", o.item.driver, "phase", phase, "reasons", messages)
	if phase != Failing || e.triesOf(o) > 2 {
		e.event(o, "RavenCannotApply", strings.Join(messages, "; "))
	}
	return next
}

func rank(p Phase) int { return slices.Index([]Phase{Failing, Waiting, Terminal}, p) }

// verdict decides, for one error, what the owner is from now on, when it is tried again and what may wake it before.
//
//	unknown need, in use, quota, subnet full   waiting: woken by what it waits for, tried slowly besides
//	invalid answer, a request that is refused  terminal: only another object, driver or configuration helps
//	everything else                            failing: tried again, ever later
func verdict(err error) (Phase, result, []waitKey) {
	var (
		unknown  unknownNeedError
		terminal terminalError
		inUse    inUseError
		step     stepError
	)
	switch {
	case errors.As(err, &unknown):
		return Waiting, result{again: slowTry}, nil
	case errors.As(err, &terminal):
		return Terminal, result{}, nil
	case errors.As(err, &inUse):
		return Waiting, result{backoff: true}, nil
	case errors.As(err, &step):
		return stepVerdict(step)
	default:
		return Failing, result{backoff: true}, nil
	}
}

func stepVerdict(f stepError) (Phase, result, []waitKey) {
	switch openstack.Classify(f.err) { //nolint:exhaustive // the default is the rule, these are its exceptions
	case openstack.ClassQuota:
		return Waiting, result{again: slowTry}, []waitKey{waitQuota(f.step.Kind)}
	case openstack.ClassSubnetFull:
		network, _ := f.step.Attrs["network_id"].(string)
		return Waiting, result{again: slowTry}, []waitKey{waitRoom(network)}
	case openstack.ClassInUse:
		return Waiting, result{backoff: true}, nil
	case openstack.ClassTerminal:
		return Terminal, result{again: terminalTry}, nil
	case openstack.ClassThrottled:
		if after := openstack.RetryAfter(f.err); after > 0 {
			return Failing, result{again: after}, nil
		}
	}
	return Failing, result{backoff: true}, nil
}

func (e *Engine) triesOf(o *owner) int {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return o.tries
}

func (e *Engine) setPhase(o *owner, phase Phase, reasons []string, again time.Duration) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	now := e.clock.Now()
	if o.phase != phase {
		o.since = now
		o.tries = 0
	}
	if phase == Failing {
		o.tries++
	}
	o.phase, o.reasons, o.nextTry = phase, reasons, time.Time{}
	if again > 0 {
		o.nextTry = now.Add(again)
	}
}

// say passes a driver's diagnostics to the people who look at the object.
func (e *Engine) say(o *owner, diagnostics []drivers.Diagnostic) {
	for _, d := range diagnostics {
		e.eventOf(o, d.Severity, cmp.Or(d.Reason, "DriverSays"), d.Message)
	}
}

func (e *Engine) event(o *owner, reason, message string) {
	e.store.mu.Lock()
	said := o.lastSaid == message
	o.lastSaid = message
	e.store.mu.Unlock()
	if !said {
		e.eventOf(o, drivers.Warning, reason, message)
	}
}

func (e *Engine) eventOf(o *owner, severity drivers.Severity, reason, message string) {
	if o.gone || o.id.Driver == sharedDriver {
		return
	}
	e.writeback.Event(writeback.Target{
		GVR: o.target.watch.GVR, Kind: o.target.watch.Kind, Namespace: o.target.namespace, Name: o.target.name, UID: o.target.uid,
	}, severity, reason, message)
}

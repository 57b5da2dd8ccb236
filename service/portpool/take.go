// SPDX-License-Identifier: Apache-2.0

package portpool

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

var (
	errTaken     = errors.New("the ready port was taken, or is being taken")
	errUnsettled = errors.New("somebody may have taken the ready port before this process began: waiting until that is " +
		"known")
)

// elders are what is known of ready ports that are older than this process.
type elders struct {
	began   time.Time // when this process began to lead; zero: it does not
	settled bool      // nobody else can have one of them any more
	scanned bool
	// claims are the UIDs of the objects whose annotations name one, by its id: it is theirs.
	claims map[string]string
	// suspects were claimed once, so that a node may have bound them: they are nobody else's.
	suspects map[string]bool
}

// mayBeTaken says whether somebody may have a ready port by an annotation.
func (p *Pools) mayBeTaken(o plan.Observed) bool {
	return !p.mine[o.Identity.Name] && (!p.elder.settled || p.elder.claims[o.ID] != "")
}

// takeable says whether a ready port may be given to anybody.
func (p *Pools) takeable(o plan.Observed) bool {
	if p.busy[o.ID] || p.mine[o.Identity.Name] {
		return !p.busy[o.ID]
	}
	return p.elder.settled && !p.elder.spoiled(o)
}

// spoiled says whether somebody may have bound a ready port, which nobody else gets then: an annotation has named it,
// or it is bound.
func (e *elders) spoiled(o plan.Observed) bool { return e.suspects[o.ID] || o.Status == "ACTIVE" }

// take gives the owner of a create a ready port, if one fits.
func (p *Pools) take(ctx context.Context, step *plan.Step) (bool, error) {
	network, device := textOf(step.Attrs["network_id"]), textOf(step.Attrs["device_id"])
	if mac := textOf(step.Attrs["mac_address"]); mac != "" && !strings.EqualFold(mac, neutron.MAC(step.Identity)) {
		return false, nil // it is wished for
	}
	unsure, none := false, false
	p.env.State.View(func(tx *state.Tx) {
		none = len(p.pools)+len(p.ready) == 0
		unsure = !p.elder.scanned && slices.ContainsFunc(p.ready[network], func(id string) bool {
			o, _ := tx.Cache.Get(KindReadyPort, id)
			return !p.mine[o.Identity.Name]
		})
	})
	if none {
		return false, nil
	}
	if unsure && !p.scan() {
		return false, &backend.Failure{
			Phase: state.Waiting, RequeueAfter: time.Second, Quiet: true,
			Err: &backend.StepError{Step: *step, Err: errUnsettled},
		}
	}
	var (
		chosen plan.Observed
		found  string
	)
	p.env.State.Update(func(tx *state.Tx) {
		if chosen, found = p.choose(tx, network, device, step.Attrs); found == outcomeReady {
			p.assign(tx, chosen, step, described(step))
		} else if found == outcomeChanged {
			p.busy[chosen.ID] = true
		}
	})
	switch found {
	case outcomeChanged:
		if !p.change(ctx, chosen, step) {
			return false, nil
		}
	case outcomeReady:
		p.write()
	default:
		if found != "" {
			p.metrics.taken.WithLabelValues(found).Inc()
			p.look()
		}
		return false, nil
	}
	p.metrics.taken.WithLabelValues(found).Inc()
	step.ID = chosen.ID
	p.look()
	return true, nil
}

// choose returns the ready port of a network that fits best, and how it fits: the one that the owner has already, else
// the first that needs no change. found is empty where the network has no pool for such a port.
func (p *Pools) choose(
	tx *state.Tx, network, device string, attrs map[string]any,
) (chosen plan.Observed, found string) {
	for _, pool := range p.pools {
		if textOf(pool.Attrs["network_id"]) == network && attrs["device_owner"] == pool.Attrs["device_owner"] &&
			common(pool.Attrs["security_groups"], attrs["security_groups"]) {
			p.taken = tx.Now()
			pool.demand = append(pool.demand, p.taken)
			found = outcomeEmpty
		}
	}
	for id, uid := range p.elder.claims {
		if o, there := tx.Cache.Get(KindReadyPort, id); there && uid == device && !p.busy[id] && fits(o, attrs) != "" {
			return o, fits(o, attrs)
		}
	}
	for _, id := range p.ready[network] {
		o, there := tx.Cache.Get(KindReadyPort, id)
		if !there || !p.takeable(o) {
			continue
		}
		switch how := fits(o, attrs); {
		case how == outcomeReady:
			return o, how
		case how == outcomeChanged && found != outcomeChanged:
			chosen, found = o, how
		}
	}
	return chosen, found
}

// fits says how a ready port fits a create: as it is, after a change of its security groups, or, empty, not at all.
func fits(o plan.Observed, attrs map[string]any) string {
	for name, want := range attrs {
		switch name {
		case "name", "device_id", "binding:host_id", "security_groups": // these follow
		case "mac_address": // see take
		default:
			if !reflect.DeepEqual(want, o.Attrs[name]) {
				return ""
			}
		}
	}
	switch mine, theirs := ids(o.Attrs["security_groups"]), ids(attrs["security_groups"]); {
	case slices.Equal(mine, theirs):
		return outcomeReady
	case common(o.Attrs["security_groups"], attrs["security_groups"]):
		return outcomeChanged
	}
	return ""
}

// follows are the attributes of a create that a taken port gets.
func follows(step *plan.Step) map[string]any {
	attrs := maps.Clone(step.Attrs)
	for _, name := range []string{"mac_address", "network_id", "fixed_ips"} {
		delete(attrs, name)
	}
	return attrs
}

// assign has a ready port be that of a create, and queues what is to be written of that: its tags, and attributes
// unless these are written.
func (p *Pools) assign(tx *state.Tx, o plan.Observed, step *plan.Step, attrs map[string]any) {
	taken := o
	taken.Kind, taken.Identity, taken.Tags = drivers.KindPort, step.Identity, step.Identity.Tags()
	taken.Description = step.Identity.Description()
	taken.Attrs = merged(o.Attrs, follows(step))
	if !tx.Assign(KindReadyPort, taken) {
		return
	}
	p.forget(o)
	delete(p.elder.claims, o.ID)
	p.behind[o.ID] = &write{
		tags: taken.Tags, attrs: attrs, since: tx.Now(), free: make(chan struct{}, 1),
	}
	p.queue = append(p.queue, o.ID)
}

// described are the attributes with the description that proves whose a port is.
func described(step *plan.Step) map[string]any {
	attrs := follows(step)
	attrs["description"] = step.Identity.Description()
	return attrs
}

// change gives a ready port to a create that wants other security groups: they have to be right before anybody knows of
// the port. One of which it is not known what it is then is deleted.
func (p *Pools) change(ctx context.Context, o plan.Observed, step *plan.Step) bool {
	now, err := p.neutron.Change(ctx, o.ID, described(step))
	if err != nil {
		p.env.Log.WarnContext(ctx, "a ready port could not be changed and is given up", "id", o.ID, "error", err)
		_ = p.drop(context.WithoutCancel(ctx), o.ID)
		return false
	}
	p.env.State.Update(func(tx *state.Tx) {
		now.Kind, now.Status = KindReadyPort, o.Status
		p.assign(tx, now, step, nil)
	})
	p.write()
	return true
}

// scan reads from the annotations who has which ready port. It says whether all objects were read.
func (p *Pools) scan() bool {
	claims := map[string]string{}
	all := p.env.Loop.Annotations(func(uid string, annotations map[string]string) {
		var port struct {
			ID       string `json:"id"`
			DeviceID string `json:"device_id"`
		}
		text := annotations[contract.Port]
		// An annotation that was copied has another object's UID.
		if text != "" && json.Unmarshal([]byte(text), &port) == nil && port.DeviceID == uid && port.ID != "" {
			claims[port.ID] = uid
		}
	})
	if !all {
		return false
	}
	p.env.State.Update(func(tx *state.Tx) {
		clear(p.elder.claims)
		for _, o := range tx.Cache.OfKind(KindReadyPort) {
			if uid := claims[o.ID]; uid != "" && !p.mine[o.Identity.Name] {
				p.elder.claims[o.ID], p.elder.suspects[o.ID] = uid, true
			}
		}
		p.elder.scanned = true
	})
	return true
}

// settle ends the time in which somebody else may have a ready port that is older than this process: every driver has
// answered for every object, and what an old leader may still write has come.
func (p *Pools) settle() {
	due := false
	p.env.State.View(func(tx *state.Tx) {
		due = !p.elder.settled && tx.Now().Sub(p.elder.began) >= p.env.Timing.UnknownWait
		for _, d := range tx.Drivers() {
			due = due && d.Over()
		}
	})
	if !due || !p.scan() {
		return
	}
	p.env.State.Update(func(tx *state.Tx) {
		p.elder.settled = true
		for _, o := range tx.Cache.OfKind(KindReadyPort) {
			if !p.mine[o.Identity.Name] && p.elder.spoiled(o) {
				p.elder.suspects[o.ID] = true
			}
		}
	})
}

// common says whether two lists of ids have one in common, or are both empty.
func common(a, b any) bool {
	x, y := ids(a), ids(b)
	return len(x)+len(y) == 0 || slices.ContainsFunc(x, func(id string) bool { return slices.Contains(y, id) })
}

// ids returns the texts of a list, sorted.
func ids(value any) []string {
	list, _ := value.([]any)
	texts := make([]string, 0, len(list))
	for _, element := range list {
		texts = append(texts, textOf(element))
	}
	slices.Sort(texts)
	return texts
}

func merged(base, over map[string]any) map[string]any {
	all := make(map[string]any, len(base)+len(over))
	maps.Copy(all, base)
	maps.Copy(all, over)
	return all
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}

package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// afterFloatingIP looks whether a floating IP whose create was refused is there already, and takes it where nobody else has it:
// Neutron refuses a second one of the address, and the address itself to most credentials. It returns nil where that is not what
// the refusal is about.
func (e *Engine) afterFloatingIP(ctx context.Context, fail stepError) error {
	address := textOf(fail.step.Attrs["floating_ip_address"])
	class := openstack.Classify(fail.err)
	if address == "" || class != openstack.ClassExists && class != openstack.ClassForbidden && class != openstack.ClassRetry {
		return nil
	}
	if adopted, err := e.adoptExisting(ctx, fail.step); err != nil || adopted {
		if err != nil {
			return stepError{step: fail.step, err: err}
		}
		return mendedError{fail}
	}
	found, err := e.cloud.FindFloatingIP(ctx, address)
	switch {
	case openstack.Classify(err) == openstack.ClassNotFound && class == openstack.ClassForbidden:
		fail.note = fmt.Sprintf("these credentials may not ask for an address of their own choice, and project has no floating IP %s: "+
			"have an administrator create it in this project, and it is taken", address)
		return fail
	case openstack.Classify(err) == openstack.ClassNotFound:
		fail.note = fmt.Sprintf("%s is not a floating IP of this project: it is taken by somebody else", address)
		return fail
	case err != nil:
		return stepError{step: fail.step, err: err}
	}
	if why := e.taken(found, fail.step); why != "" {
		fail.note = fmt.Sprintf("floating IP %s (%s) is not free: %s", address, found.ID, why)
		return fail
	}
	return e.take(ctx, fail, found)
}

// taken says why a floating IP cannot be had, and "" if it can: nothing uses it, and nobody who is there, or may be, has a claim to it.
func (e *Engine) taken(found plan.Observed, step plan.Step) string {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	id := found.Identity
	switch {
	case found.Managed && id.Key().Cluster != step.Identity.Key().Cluster:
		return "it belongs to cluster " + id.Cluster
	case found.Managed && e.store.owners[id.Owner] != nil && !e.store.owners[id.Owner].gone && id.Owner != step.Identity.Owner:
		return "it belongs to " + e.store.owners[id.Owner].target.String()
	case found.Managed && e.store.owners[id.Owner] == nil && e.store.unheardOf(id.Owner) != "":
		return e.store.unheardOf(id.Owner)
	case textOf(found.Attrs["port_id"]) != "":
		return "it leads to port " + textOf(found.Attrs["port_id"])
	case textOf(found.Attrs["floating_network_id"]) != textOf(step.Attrs["floating_network_id"]):
		return "it is on network " + textOf(found.Attrs["floating_network_id"])
	}
	return ""
}

// unheardOf says why an owner that is not known may be there all the same, and "" if its object is gone: its driver has answered for all
// that there are. The store is locked.
func (s *store) unheardOf(id plan.Owner) string {
	if id.Driver == sharedDriver {
		return "it is shared"
	}
	for _, d := range s.drivers {
		if plan.ShortDriver(d.owns) != id.Driver {
			continue
		}
		if !d.answered() {
			return fmt.Sprintf("it may belong to an object of driver %s, which has not answered for all of them yet", d.name)
		}
		return ""
	}
	return fmt.Sprintf("it belongs to an object of driver %s, which is not enabled", id.Driver)
}

// foundMark is the tag, and the word of the description, of a floating IP that was there before Raven took it: it is never deleted.
const foundMark = "raven:found"

func wasFound(o plan.Observed) bool {
	return slices.Contains(o.Tags, foundMark) || slices.Contains(strings.Fields(o.Description), foundMark)
}

// take writes our identity on a floating IP that somebody else made.
func (e *Engine) take(ctx context.Context, fail stepError, found plan.Observed) error {
	identity := fail.step.Identity
	identity.Policy = drivers.Retain
	var stale []string
	if found.Managed {
		// Raven made it for an object that is gone, or took it for one.
		stale = found.Identity.Tags()
	}
	for _, tag := range found.Tags {
		if plan.IsMark(tag) {
			stale = append(stale, tag)
		}
	}
	if err := e.cloud.RemoveTags(ctx, found.Kind, found.ID, stale); err != nil {
		return stepError{step: fail.step, err: err}
	}
	description := found.Description
	if !wasFound(found) {
		description = foundMark + " " + description
	}
	tags := append(identity.Tags(), foundMark)
	e.store.do(func() {
		if mark := e.store.mark(identity.Owner); mark != "" {
			tags = append(tags, mark)
		}
	})
	taken, err := e.cloud.Update(ctx, found.Kind, found.ID, 0, map[string]any{"description": identity.Describe(description)})
	if err == nil {
		err = e.cloud.AddTags(ctx, found.Kind, found.ID, tags)
	}
	if err != nil {
		return stepError{step: fail.step, err: err}
	}
	taken.Tags = append(taken.Tags, tags...)
	taken.Identity, taken.Managed = identity, true
	e.log.InfoContext(ctx, "took a floating IP that was there", "address", fail.step.Attrs["floating_ip_address"], "id", found.ID)
	e.arrive(taken)
	return mendedError{fail}
}

// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// place is what has to be in the group of a load balancer in OVN for that one to serve: a switch or a router.
type place struct {
	role      string // whose resource stands for it
	attribute string // the group's list
	thing     string // for people
	of        string
}

// podsPlace is where a Service's clients in the cluster are; outerPlace where those come by who use its floating IPs.
func podsPlace() place {
	return place{role: drivers.PodNetwork, attribute: "networks", thing: "network", of: "its namespace's pods"}
}

func outerPlace() place {
	return place{role: drivers.ClusterRouter, attribute: "routers", thing: "router", of: "its namespace's networks"}
}

// attachment is a place of one namespace.
type attachment struct {
	place
	id       string      // of the network or router; "" while that is not known, or if there is none
	unknown  string      // why that is not known
	conflict bool        // that does not pass by itself
	waits    []state.Key // what may change it
}

// attachments returns what the group of a load balancer in OVN has to be attached to for that one to serve: the pods'
// network, and the router if there are addresses outside.
func attachments(tx *state.Tx, w *state.Want, namespace string, attrs map[string]any) []attachment {
	list := []attachment{attachmentTo(tx, w, namespace, podsPlace())}
	vips, _ := attrs["vips"].([]any)
	if slices.ContainsFunc(vips, func(vip any) bool { return plan.Field(vip, "external") == true }) {
		list = append(list, attachmentTo(tx, w, namespace, outerPlace()))
	}
	waits := slices.Collect(maps.Keys(w.Depends))
	for i := range list {
		list[i].waits = waits
	}
	return list
}

// attachmentTo returns a place of a namespace, or why it is not known. Where no driver says that there is one, there is
// neither.
func attachmentTo(tx *state.Tx, w *state.Want, namespace string, at place) attachment {
	a := attachment{place: at}
	role := drivers.Role{Kind: "Namespace", Name: namespace, Role: at.role}
	if a.id, _ = tx.Known(w, drivers.Ref{Role: &role}).(string); a.id != "" {
		return a
	}
	if conflict := tx.RoleConflict(role); conflict != "" {
		a.unknown, a.conflict = conflict, true
		return a
	}
	switch {
	case tx.Exported(role):
		a.unknown = fmt.Sprintf("the %s of %s is not there yet", at.thing, at.of)
	case untranslated(tx, role):
		a.unknown = fmt.Sprintf("it is not known yet which %s is that of %s; still open: %s",
			at.thing, at.of, tx.Unanswered())
	}
	return a
}

// untranslated says whether a driver may still export a resource under a role.
func untranslated(tx *state.Tx, role drivers.Role) bool {
	for _, d := range tx.Drivers() {
		if !d.Complete() {
			return true
		}
	}
	for _, o := range tx.Objects() {
		if o.Target.Watch.Kind == role.Kind && o.Target.Name == role.Name && tx.Untranslated(o) {
			return true
		}
	}
	return false
}

// unmet says why a successor would not serve its namespace's pods, or no client outside, while its group is as it is;
// nil: it would.
func (a attachment) unmet(s successor, group plan.Observed) *backend.Failure {
	joined, _ := group.Attrs[a.attribute].([]any)
	text := a.unknown
	switch {
	case text != "":
	case a.id == "": // it is not for Raven to say who reaches what
		return nil
	case slices.Contains(joined, any(a.id)):
		return nil
	default:
		text = fmt.Sprintf("the %s %s of %s has not joined its group %s in OVN's northbound database yet",
			a.thing, a.id, a.of, s.group)
	}
	return &backend.Failure{
		Phase: state.Waiting, Backoff: true, Wait: a.waits, Patient: !a.conflict, Err: errors.New(text),
	}
}

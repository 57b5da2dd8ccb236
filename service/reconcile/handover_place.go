package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
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

// berth is a place of one namespace.
type berth struct {
	place
	id    string        // of the network or router; "" while that is not known, or if there is none
	lacks unplacedError // why that is not known, and what may change it
}

// unplacedError says that a load balancer in OVN would not serve its namespace's pods, or nobody outside.
type unplacedError struct {
	text     string
	waits    []waitKey // what may change that
	conflict bool      // it does not pass by itself
}

func (u unplacedError) Error() string { return u.text }

// berths returns where a load balancer in OVN has to be to serve: in the pods' network, and in the router if it has addresses outside. The store is
// locked.
func (s *store) berths(w *want, namespace string, attrs map[string]any) []berth {
	list := []berth{s.berth(w, namespace, podsPlace())}
	if slices.ContainsFunc(listOf(attrs["vips"]), func(element any) bool {
		vip, _ := element.(map[string]any)
		return vip["external"] == true
	}) {
		list = append(list, s.berth(w, namespace, outerPlace()))
	}
	waits := slices.Collect(maps.Keys(w.looked))
	for i := range list {
		list[i].lacks.waits = waits
	}
	return list
}

// berth returns a place of a namespace, or why it is not known. Where no driver says that there is one, there is neither. The store is locked.
func (s *store) berth(w *want, namespace string, at place) berth {
	b := berth{place: at}
	role := drivers.Role{Kind: "Namespace", Name: namespace, Role: at.role}
	if b.id, _ = s.known(w, drivers.Ref{Role: &role}).(string); b.id != "" {
		return b
	}
	if conflict := s.roleConflict(role); conflict != "" {
		b.lacks = unplacedError{text: conflict, conflict: true}
		return b
	}
	silent := slices.ContainsFunc(slices.Collect(maps.Values(s.drivers)), func(d *driverState) bool { return !d.answered() })
	for _, o := range s.owners {
		silent = silent || o.target.watch.Kind == role.Kind && o.target.name == role.Name && s.silent(o)
	}
	switch {
	case len(s.roles[role]) > 0:
		b.lacks.text = fmt.Sprintf("the %s of %s is not there yet", at.thing, at.of)
	case silent:
		b.lacks.text = fmt.Sprintf("it is not known yet which %s is that of %s; still open: %s", at.thing, at.of, s.unanswered())
	}
	return b
}

// vetHeirInOVN looks whether a load balancer in OVN would serve all that it is for.
func (e *Engine) vetHeirInOVN(_ context.Context, _ *owner, h heir) error {
	if e.config.Northbound == nil {
		return stepError{step: h.step, err: noNorthbound()}
	}
	group, there, err := e.config.Northbound.Get(drivers.KindOVNLoadBalancerGroup, h.group)
	switch {
	case err != nil:
		return stepError{step: h.step, err: err}
	case !there:
		return stepError{step: h.step, err: fmt.Errorf("its group %s is not in OVN's northbound database", h.group)}
	}
	for _, b := range h.berths {
		switch {
		case b.lacks.text != "":
			return stepError{step: h.step, err: b.lacks}
		case b.id == "": // who reaches what how is not ours to say
		case !slices.Contains(listOf(group.Attrs[b.attribute]), any(b.id)):
			b.lacks.text = fmt.Sprintf("the %s %s of %s has not joined its group %s in OVN's northbound database yet", b.thing, b.id, b.of, h.group)
			return stepError{step: h.step, err: b.lacks}
		}
	}
	return nil
}

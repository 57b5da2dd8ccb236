package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// exporter is a resource that stands behind a role.
type exporter struct {
	owner plan.Owner
	name  string // logical name in the owner's Set
}

// waitKey is something that may arrive, change or go: see the functions that make them.
type waitKey struct {
	what string
	role drivers.Role
	name string
}

func waitRole(r drivers.Role) waitKey     { return waitKey{what: "role", role: r} }
func waitClaim(name string) waitKey       { return waitKey{what: "claim", name: name} }
func waitGone(id string) waitKey          { return waitKey{what: "gone", name: id} }
func waitRoom(networkID string) waitKey   { return waitKey{what: "room", name: networkID} }
func waitQuota(kind drivers.Kind) waitKey { return waitKey{what: "quota", name: string(kind)} }

// adopt takes over a new Set of an owner and keeps the indexes of roles, claims and contributions. It returns who must look
// again because of it.
func (s *store) adopt(o *owner, set drivers.Set) []item {
	before, after := exportsOf(o.target, o.set), exportsOf(o.target, set)
	var woken []item
	for role, name := range before {
		drop(s.roles, role, exporter{o.id, name})
	}
	claims := claimsOf(set)
	if !sameClaims(o.claims, claims) || !slices.Equal(o.set.Undecided, set.Undecided) {
		woken = append(woken, item{driver: sharedDriver})
	}
	for name := range o.claims {
		drop(s.claims, name, o.id)
	}
	for name := range claims {
		add(s.claims, name, o.id)
	}
	for _, name := range o.set.Undecided {
		drop(s.undecided, name, o.id)
	}
	for _, name := range set.Undecided {
		add(s.undecided, name, o.id)
	}
	touched := s.withdraw(o)
	woken = append(woken, s.wakeRivals(o, o.set.Outputs, set.Outputs)...)
	o.set, o.claims, o.balanced = set, claims, balanced(set) || o.balanced && s.away != nil
	for role, name := range after {
		add(s.roles, role, exporter{o.id, name})
	}
	for role, name := range before {
		if after[role] != name {
			woken = append(woken, s.roleChanged(role)...)
		}
	}
	for role := range after {
		if before[role] == "" {
			woken = append(woken, s.roleChanged(role)...)
		}
	}
	for _, c := range set.Contributions {
		byOwner := s.extra[c.Target]
		if byOwner == nil {
			byOwner = map[plan.Owner][]drivers.Contribution{}
			s.extra[c.Target] = byOwner
		}
		byOwner[o.id] = append(byOwner[o.id], c)
		touched[c.Target] = true
	}
	for role := range touched {
		woken = append(woken, s.ownersBehind(role, o)...)
	}
	return woken
}

// withdraw takes an owner's contributions out of the index, and returns the roles that they were for.
func (s *store) withdraw(o *owner) map[drivers.Role]bool {
	touched := map[drivers.Role]bool{}
	for _, c := range o.set.Contributions {
		delete(s.extra[c.Target], o.id)
		if len(s.extra[c.Target]) == 0 {
			delete(s.extra, c.Target)
		}
		touched[c.Target] = true
	}
	return touched
}

// roleChanged returns who must look again because another resource stands behind a role: who refers to it, and who exports it.
func (s *store) roleChanged(role drivers.Role) []item {
	woken := s.wake(waitRole(role))
	for e := range s.roles[role] {
		woken = append(woken, s.ownerItem(e.owner)...)
	}
	return woken
}

// ownersBehind returns whose resources stand behind a role, but for the owner that asks.
func (s *store) ownersBehind(role drivers.Role, but *owner) []item {
	var items []item
	for e := range s.roles[role] {
		o := s.owners[e.owner]
		switch {
		case o == nil:
		case claimOf(o.set, e.name) != "":
			items = append(items, item{driver: sharedDriver})
		case o != but:
			items = append(items, o.item)
		}
	}
	return items
}

// exportsOf maps the roles of a Set to the logical names behind them.
func exportsOf(t target, set drivers.Set) map[drivers.Role]string {
	exports := map[drivers.Role]string{}
	for _, r := range set.Resources {
		for _, role := range rolesOf(t, r) {
			exports[role] = r.Name
		}
	}
	return exports
}

// rolesOf lists the roles under which others find a resource.
func rolesOf(t target, r drivers.Resource) []drivers.Role {
	var roles []drivers.Role
	for _, name := range r.Exports {
		roles = append(roles, drivers.Role{Kind: t.watch.Kind, Namespace: t.namespace, Name: t.name, Role: name})
		if r.Claim != "" {
			roles = append(roles, drivers.Role{Role: name})
		}
	}
	return roles
}

// exporters lists who stands behind a role. Claimed resources count once however many claim them.
func (s *store) exporters(role drivers.Role) []exporter {
	var list []exporter
	seen := map[string]bool{}
	for e := range s.roles[role] {
		if o := s.owners[e.owner]; o != nil {
			if claim := claimOf(o.set, e.name); claim != "" {
				if seen[claim] {
					continue
				}
				seen[claim] = true
			}
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b exporter) int {
		return cmp.Or(cmp.Compare(a.owner.Driver, b.owner.Driver), cmp.Compare(a.owner.UID, b.owner.UID), cmp.Compare(a.name, b.name))
	})
	return list
}

// roleConflict says why a role leads nowhere: more than one resource stands behind it. It is "" otherwise.
func (s *store) roleConflict(role drivers.Role) string {
	if len(s.roles[role]) < 2 {
		return ""
	}
	exporters := s.exporters(role)
	if len(exporters) < 2 {
		return ""
	}
	names := make([]string, 0, len(exporters))
	for _, e := range exporters {
		names = append(names, "driver "+e.owner.Driver)
	}
	return fmt.Sprintf("the %s is exported more than once, by %s: enable only one of them", role, strings.Join(names, " and "))
}

// wait records what wakes an owner, in place of what did before.
func (s *store) wait(o *owner, keys []waitKey) {
	s.unwait(o)
	o.waits = keys
	for _, key := range keys {
		add(s.waiters, key, o)
	}
}

func (s *store) unwait(o *owner) {
	for _, key := range o.waits {
		drop(s.waiters, key, o)
	}
	o.waits, o.blocked = nil, nil
}

// wake returns who waits for a thing.
func (s *store) wake(key waitKey) []item {
	var items []item
	for o := range s.waiters[key] {
		items = append(items, o.item)
	}
	return items
}

// wakeSome returns two of those who wait for a thing of which there is not enough for all. Who succeeds wakes others.
func (s *store) wakeSome(key waitKey) []item {
	s.ticks[key]++
	items := s.successors(key)
	for o := range s.waiters[key] {
		if len(items) >= 2 {
			break
		}
		items = append(items, o.item)
	}
	return items
}

// arrived takes a resource that was made, changed or seen into the mirror, and returns who waited for it.
func (s *store) arrived(o plan.Observed) []item {
	delete(s.doubts, identityKey(o.Kind, o.Identity))
	_, differs := s.cloud.put(o)
	if !differs {
		return nil
	}
	return s.announce(o, true)
}

// announce returns who must look again because a resource is there now, is not there any more, or has other attributes.
func (s *store) announce(o plan.Observed, there bool) []item {
	var woken []item
	// Who waits for it to go may wait no more either when it does not use theirs any longer.
	woken = append(woken, s.wake(waitGone(o.ID))...)
	switch {
	case there:
		delete(s.doubts, identityKey(o.Kind, o.Identity))
	case !s.succeeded(o):
		woken = append(woken, s.wakeSome(waitQuota(o.Kind))...)
	}
	network, _ := o.Attrs["network_id"].(string)
	switch {
	case o.Kind == drivers.KindSubnet && there:
		s.ticks[waitRoom(network)]++
		woken = append(woken, s.wake(waitRoom(network))...)
	case o.Kind == drivers.KindPort && !there:
		woken = append(woken, s.wakeSome(waitRoom(network))...)
	case o.Kind == drivers.KindNetwork && !there:
		delete(s.ticks, waitRoom(o.ID))
	}
	if o.Identity.Owner.Driver != sharedDriver {
		if ow := s.owners[o.Identity.Owner]; ow != nil {
			woken = append(woken, s.announceTo(ow, o, false)...)
			for _, c := range ow.set.Contributions {
				woken = append(woken, s.ownersBehind(c.Target, ow)...)
			}
		}
		return woken
	}
	for name := range s.undecided {
		if isNamed(o, name) {
			woken = append(woken, s.wake(waitClaim(name))...)
		}
	}
	for name, claimants := range s.claims {
		if !isNamed(o, name) {
			continue
		}
		woken = append(woken, s.wake(waitClaim(name))...)
		for id := range claimants {
			if c := s.owners[id]; c != nil {
				woken = append(woken, s.announceTo(c, o, true)...)
			}
		}
	}
	return woken
}

// announceTo returns who refers by role to a resource of an owner's Set, its own or a claimed one.
func (s *store) announceTo(o *owner, r plan.Observed, claimed bool) []item {
	var woken []item
	for _, want := range o.set.Resources {
		name := want.Name
		if claimed {
			name = want.Claim
		}
		if name == "" || want.Claim != "" != claimed || !isNamed(r, name) {
			continue
		}
		for _, role := range rolesOf(o.target, want) {
			woken = append(woken, s.wake(waitRole(role))...)
		}
	}
	return woken
}

// isNamed says whether a resource in the cloud has that logical name.
func isNamed(o plan.Observed, logical string) bool {
	name := kinds.LogicalName(o.Kind, logical)
	return name == o.Identity.Name || plan.Identity{Name: name}.Key().Name == o.Identity.Name
}

// departed drops a resource that is gone from the mirror, and returns who must look again because of that.
func (s *store) departed(kind drivers.Kind, id string) []item {
	old, known := s.cloud.remove(kind, id)
	if !known {
		return s.wake(waitGone(id))
	}
	woken := append(s.announce(old, false), s.ownerItem(old.Identity.Owner)...)
	if len(s.cloud.byOwner[old.Identity.Owner]) == 0 {
		woken = append(woken, s.released()...) // it may have been the last of a driver that is not enabled
	}
	if kind == drivers.KindSecurityGroup {
		for _, rule := range s.cloud.dependants(kind, id) {
			if rule.Kind == drivers.KindSecurityGroupRule && rule.Attrs["security_group_id"] == id {
				woken = append(woken, s.departed(rule.Kind, rule.ID)...) // it went with its group
			}
		}
	}
	return woken
}

package reconcile

import (
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// sharedDriver is the owner of claimed resources; see plan.Owner.
const sharedDriver = plan.Shared

// item names one key of one driver, or the shared owner.
type item struct {
	driver string
	key    watch.Key
}

// Phase is where a source object stands.
type Phase string

// The phases.
//
//	            +--------- woken by arrival ---------+
//	            v                                    |
//	pending -> (translate, plan, apply) -> waiting --+
//	   ^        |        |         |
//	   |        v        v         +-> failing (tried again, ever later)
//	   +----- done    terminal (until the object, the driver or the configuration changes)
const (
	Pending  Phase = "pending"
	Done     Phase = "done"
	Waiting  Phase = "waiting"
	Failing  Phase = "failing"
	Terminal Phase = "terminal"
)

// owner is what is known of one source object of one driver, by UID.
type owner struct {
	id     plan.Owner
	item   item
	target target
	gone   bool // the source object is not there any more

	set    drivers.Set
	hasSet bool   // the driver has answered in this process
	epoch  int    // the driver's epoch at its last answer, good or bad
	good   int    // the driver's epoch at its last good answer
	input  uint64 // hash of what the last good answer was made from
	needs  []drivers.Need
	held   int // deletions that the replay guard holds

	phase    Phase
	reasons  []string
	since    time.Time
	nextTry  time.Time
	tries    int
	waits    []waitKey
	lastSaid string
	wrote    written
}

// target is the source object of an owner, for people and for writing back.
type target struct {
	watch     drivers.Watch
	namespace string
	name      string
	uid       string
}

// written is the last thing written back, and the version of the object that the cache held then.
type written struct {
	hash    uint64
	version string
}

// driverState is how far a driver has come in answering.
type driverState struct {
	name  string
	epoch int
	// open are the keys of this epoch's replay that have not been answered.
	open map[watch.Key]bool
	// prune says that the replay is over and was within the guard: the driver's word may end resources.
	prune bool
	// held is how many deletions the guard holds, once the replay is over.
	held int
	// allowed is how many it would let pass.
	allowed int
}

// exporter is a resource that stands behind a role.
type exporter struct {
	owner plan.Owner
	name  string // logical name in the owner's Set
}

// waitKey is something that may arrive or go: see the functions that make them.
type waitKey string

func waitRole(r drivers.Role) waitKey { return waitKey("role " + r.String()) }
func waitClaim(name string) waitKey   { return waitKey("claim " + name) }
func waitGone(kind drivers.Kind, id string) waitKey {
	return waitKey("gone " + string(kind) + " " + id)
}
func waitRoom(networkID string) waitKey   { return waitKey("room " + networkID) }
func waitQuota(kind drivers.Kind) waitKey { return waitKey("quota " + string(kind)) }

func identityKey(kind drivers.Kind, i plan.Identity) doubtKey { return doubtKey{kind, i.Key()} }

// doubtKey names a create whose outcome is unknown.
type doubtKey struct {
	kind drivers.Kind
	key  plan.Key
}

// ownerOf returns the owner of a driver and a UID as identities read from the cloud have it, that is, shortened.
func ownerOf(driver, uid string) plan.Owner {
	k := plan.Identity{Owner: plan.Owner{Driver: driver, UID: uid}}.Key()
	return plan.Owner{Driver: k.Driver, UID: k.UID}
}

// store is all that the engine remembers. Nothing in it is needed after a restart: it is made again from the cloud and from
// the drivers' answers.
type store struct {
	// cluster is the cluster id.
	cluster string

	mu      sync.Mutex
	cloud   *mirror
	owners  map[plan.Owner]*owner
	byItem  map[item]map[plan.Owner]bool
	drivers map[string]*driverState
	roles   map[drivers.Role]map[exporter]bool
	claims  map[string]map[plan.Owner]bool
	// extra are the contributions by target role.
	extra   map[drivers.Role]map[plan.Owner][]drivers.Contribution
	waiters map[waitKey]map[item]bool
	doubts  map[doubtKey]time.Time
	// full holds, per expandable subnet, how many subnets there were when the cloud last said that they are full.
	full    map[doubtKey]int
	lookups map[drivers.Lookup]plan.Observed
	// foreign are subnets that are not ours but that our ports have addresses of.
	foreign map[string]plan.Observed
	orphans map[plan.Owner]int
	// synced is when the cloud was last observed as a whole.
	synced time.Time
}

func newStore(cluster string, names []string) *store {
	s := &store{
		cluster: cluster,
		cloud:   newMirror(),
		owners:  map[plan.Owner]*owner{},
		byItem:  map[item]map[plan.Owner]bool{},
		drivers: map[string]*driverState{},
		roles:   map[drivers.Role]map[exporter]bool{},
		claims:  map[string]map[plan.Owner]bool{},
		extra:   map[drivers.Role]map[plan.Owner][]drivers.Contribution{},
		waiters: map[waitKey]map[item]bool{},
		doubts:  map[doubtKey]time.Time{},
		full:    map[doubtKey]int{},
		lookups: map[drivers.Lookup]plan.Observed{},
		foreign: map[string]plan.Observed{},
		orphans: map[plan.Owner]int{},
	}
	for _, name := range names {
		s.drivers[name] = &driverState{name: name}
	}
	return s
}

func (s *store) addDriver(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drivers[name] == nil {
		s.drivers[name] = &driverState{name: name}
	}
}

// beginEpoch starts a replay: until every key has been answered, the driver's word ends nothing.
func (s *store) beginEpoch(name string, keys []watch.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drivers[name]
	d.epoch++
	d.prune, d.held = false, 0
	d.open = make(map[watch.Key]bool, len(keys))
	for _, key := range keys {
		d.open[key] = true
	}
}

// ensureOwner returns the owner of a source object, made if it is new.
func (s *store) ensureOwner(it item, t target, now time.Time) *owner {
	id := ownerOf(it.driver, t.uid)
	o := s.owners[id]
	if o == nil {
		o = &owner{id: id, item: it, target: t, phase: Pending, since: now}
		s.owners[id] = o
		add(s.byItem, it, id)
	}
	return o
}

// forget drops an owner that has nothing left.
func (s *store) forget(o *owner) {
	s.adopt(o, drivers.Set{})
	s.unwait(o)
	delete(s.owners, o.id)
	drop(s.byItem, o.item, o.id)
	delete(s.orphans, o.id)
}

// adopt takes over a new Set of an owner and keeps the indexes of roles, claims and contributions. It returns who must look
// again because of it.
func (s *store) adopt(o *owner, set drivers.Set) []item {
	before, after := exportsOf(o.target, o.set), exportsOf(o.target, set)
	var woken []item
	for role, e := range before {
		drop(s.roles, role, exporter{o.id, e})
	}
	for _, name := range claimsOf(o.set) {
		drop(s.claims, name, o.id)
	}
	touched := map[drivers.Role]bool{}
	for _, c := range o.set.Contributions {
		delete(s.extra[c.Target], o.id)
		if len(s.extra[c.Target]) == 0 {
			delete(s.extra, c.Target)
		}
		touched[c.Target] = true
	}

	changedClaims := !sameClaims(o.set, set)
	o.set = set
	for role, e := range after {
		add(s.roles, role, exporter{o.id, e})
		if before[role] != e {
			woken = append(woken, s.wake(waitRole(role))...)
		}
	}
	for role := range before {
		if after[role] == "" {
			woken = append(woken, s.wake(waitRole(role))...)
		}
	}
	for _, name := range claimsOf(set) {
		add(s.claims, name, o.id)
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
		for e := range s.roles[role] {
			if target := s.owners[e.owner]; target != nil && target != o {
				woken = append(woken, target.item)
			}
		}
	}
	if changedClaims {
		woken = append(woken, item{driver: sharedDriver})
	}
	return woken
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

func claimsOf(set drivers.Set) []string {
	var names []string
	for _, r := range set.Resources {
		if r.Claim != "" {
			names = append(names, r.Claim)
		}
	}
	return names
}

func sameClaims(a, b drivers.Set) bool {
	return slices.Equal(claimTexts(a), claimTexts(b))
}

func claimTexts(set drivers.Set) []string {
	var texts []string
	for _, r := range set.Resources {
		if r.Claim != "" {
			texts = append(texts, claimText(claimed(set, r)))
		}
	}
	slices.Sort(texts)
	return texts
}

// wait records what an owner waits for, in place of what it waited for before.
func (s *store) wait(o *owner, keys []waitKey) {
	s.unwait(o)
	o.waits = keys
	for _, key := range keys {
		add(s.waiters, key, o.item)
	}
}

func (s *store) unwait(o *owner) {
	for _, key := range o.waits {
		drop(s.waiters, key, o.item)
	}
	o.waits = nil
}

// wake returns who waits for a thing.
func (s *store) wake(key waitKey) []item {
	var items []item
	for it := range s.waiters[key] {
		items = append(items, it)
	}
	return items
}

// arrived takes a resource that was made, changed or seen into the mirror, and returns who waited for it.
func (s *store) arrived(o plan.Observed) []item {
	s.cloud.put(o)
	delete(s.doubts, identityKey(o.Kind, o.Identity))
	var woken []item
	name := trimInterface(o.Identity.Name)
	if o.Identity.Owner.Driver == sharedDriver {
		woken = append(woken, s.wake(waitClaim(name))...)
		for id := range s.claims[name] {
			if c := s.owners[id]; c != nil {
				woken = append(woken, s.wakeRoles(c, name)...)
			}
		}
		return woken
	}
	if ow := s.owners[o.Identity.Owner]; ow != nil {
		woken = append(woken, s.wakeRoles(ow, name)...)
	}
	if o.Kind == drivers.KindSubnet {
		if network, ok := o.Attrs["network_id"].(string); ok {
			woken = append(woken, s.wake(waitRoom(network))...)
		}
	}
	return woken
}

// wakeRoles returns who waits for the roles of the owner's resource of that logical or claim name.
func (s *store) wakeRoles(o *owner, name string) []item {
	var woken []item
	for _, r := range o.set.Resources {
		if r.Name != name && (r.Claim == "" || r.Claim != name) {
			continue
		}
		for _, role := range rolesOf(o.target, r) {
			woken = append(woken, s.wake(waitRole(role))...)
		}
	}
	return woken
}

// departed drops a resource that is gone from the mirror, and returns who waited for that.
func (s *store) departed(kind drivers.Kind, id string) []item {
	old, known := s.cloud.remove(kind, id)
	woken := s.wake(waitGone(kind, id))
	woken = append(woken, s.wake(waitQuota(kind))...)
	if !known {
		return woken
	}
	if network, ok := old.Attrs["network_id"].(string); ok && kind == drivers.KindPort {
		woken = append(woken, s.wake(waitRoom(network))...)
	}
	if ow := s.owners[old.Identity.Owner]; ow != nil {
		woken = append(woken, ow.item)
	} else if old.Identity.Owner.Driver == sharedDriver {
		woken = append(woken, item{driver: sharedDriver})
	}
	return woken
}

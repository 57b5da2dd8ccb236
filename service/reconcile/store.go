package reconcile

import (
	"cmp"
	"fmt"
	"strings"
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
	claims map[string]claim // what the Set claims, by the claim's name
	hasSet bool             // the driver has answered in this process
	good   int              // the driver's epoch at its last good answer
	input  uint64           // hash of what the last good answer was made from
	needs  []drivers.Need
	// unheard counts the tries in this replay that passed without an answer.
	unheard int
	held    int // deletions that are held back
	// balanced: its Set has load balancers, or had when it was last known what there is of them.
	balanced bool
	// compared is the driver's epoch for which the replay guard has counted what the answer would end; guarded says that it
	// holds that.
	compared int
	guarded  bool

	phase   Phase
	reasons []string
	doing   string // what is being applied now
	since   time.Time
	nextTry time.Time
	tries   int
	// waits is what wakes the owner; blocked are those of it that it cannot go on without.
	waits    []waitKey
	blocked  []waitKey
	lastSaid string        // the last Event
	gap      time.Duration // for how long nobody served at the last handover
	stale    time.Time     // since when it is known to be served by what nobody follows, as its handover waits
	notices  string        // the last diagnostics
	noticed  string        // the last notices of a plan
	wrote    written
}

// target is the source object of an owner, for people and for writing back.
type target struct {
	watch     drivers.Watch
	namespace string
	name      string
	uid       string
}

// String names the source object for people.
func (t target) String() string {
	if t.namespace == "" {
		return t.watch.Kind + " " + t.name
	}
	return t.watch.Kind + " " + t.namespace + "/" + t.name
}

// written is the last thing written back, and the version of the object that the cache held then.
type written struct {
	hash    uint64
	version string
}

// driverState is how far a driver has come in answering.
type driverState struct {
	name string
	// owns is whose name stands in the identity of what the driver makes: its exclusive role's, or its own.
	owns  string
	epoch int
	// open are the keys of this epoch's replay that have not been answered.
	open map[watch.Key]bool
	// prune says that the replay is over and was within the guard: the driver's word may end resources.
	prune bool
	// guarded says that the replay is over and was not: the guard holds what it would end.
	guarded bool
	// held is how many deletions the guard holds, once the replay is over; passed how many it has let pass.
	held, passed int
	// allowed is how many it would let pass.
	allowed int
}

// answered says whether every source object has been answered in the present epoch.
func (d *driverState) answered() bool { return d.epoch > 0 && len(d.open) == 0 }

func identityKey(kind drivers.Kind, i plan.Identity) doubtKey { return doubtKey{kind, i.Key()} }

// doubtKey names a create whose outcome is unknown.
type doubtKey struct {
	kind drivers.Kind
	key  plan.Key
}

// doubt is a create that was cut.
type doubt struct {
	since, until time.Time
}

// refusal is a read that was refused.
type refusal struct {
	err   error
	until time.Time
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
	// unsupported lists attributes of a kind that the credentials may not set.
	unsupported func(drivers.Kind) []string

	mu      sync.Mutex
	cloud   *mirror
	owners  map[plan.Owner]*owner
	byItem  map[item]map[plan.Owner]bool
	drivers map[string]*driverState
	roles   map[drivers.Role]map[exporter]bool
	claims  map[string]map[plan.Owner]bool
	// undecided are the names that Sets leave undecided; it shows in the cloud whether one is a claim's.
	undecided map[string]map[plan.Owner]bool
	// disputed are claims that disagree, with the reason.
	disputed map[string]string
	// extra are the contributions by target role.
	extra   map[drivers.Role]map[plan.Owner][]drivers.Contribution
	waiters map[waitKey]map[*owner]bool
	// ticks counts how often room or quota may have become free, so that a refusal that crossed with it is noticed.
	ticks  map[waitKey]uint64
	doubts map[doubtKey]doubt
	// full holds, per expandable subnet, how many subnets there were when the cloud last said that they are full.
	full map[doubtKey]int
	// crowded holds, per subnet that the cloud said is full, how many resources used it then.
	crowded map[string]int
	lookups map[drivers.Lookup]plan.Observed
	// unmade are providers of load balancers that made none of the further addresses they were asked for.
	unmade map[string]bool
	// vetoes keep load balancers from being replaced, and swaps are what those that go for others were made of.
	vetoes map[doubtKey]veto
	swaps  map[doubtKey]swap
	// refused are reads that were refused a moment ago.
	refused map[string]refusal
	// foreign are subnets that are not ours but that our ports have addresses of.
	foreign map[string]plan.Observed
	orphans map[plan.Owner]int
	// keepers hold back something until all opinions are in.
	keepers map[*owner]bool
	balancerState
	frozen     frozenState
	northbound northboundState
	// handovers are when those lost their load balancer that are to get one of the other kind.
	handovers map[plan.Owner]time.Time
	// promised are those for whose load balancer of Octavia's a place in the quota was seen, and when.
	promised map[plan.Owner]time.Time
	// synced is when the cloud was last observed as a whole.
	synced time.Time
	// standby says that nothing may be done yet; see Lead.
	standby bool
}

func newStore(cluster string, names []string, unsupported func(drivers.Kind) []string) *store {
	s := &store{
		cluster:     cluster,
		unsupported: unsupported,
		cloud:       newMirror(),
		owners:      map[plan.Owner]*owner{},
		byItem:      map[item]map[plan.Owner]bool{},
		drivers:     map[string]*driverState{},
		roles:       map[drivers.Role]map[exporter]bool{},
		claims:      map[string]map[plan.Owner]bool{},
		undecided:   map[string]map[plan.Owner]bool{},
		disputed:    map[string]string{},
		extra:       map[drivers.Role]map[plan.Owner][]drivers.Contribution{},
		waiters:     map[waitKey]map[*owner]bool{},
		ticks:       map[waitKey]uint64{},
		doubts:      map[doubtKey]doubt{},
		full:        map[doubtKey]int{},
		crowded:     map[string]int{},
		lookups:     map[drivers.Lookup]plan.Observed{},
		unmade:      map[string]bool{},
		vetoes:      map[doubtKey]veto{},
		swaps:       map[doubtKey]swap{},
		refused:     map[string]refusal{},
		foreign:     map[string]plan.Observed{},
		orphans:     map[plan.Owner]int{},
		keepers:     map[*owner]bool{},

		handovers:     map[plan.Owner]time.Time{},
		promised:      map[plan.Owner]time.Time{},
		balancerState: newBalancerState(),
		northbound:    northboundState{withheld: map[plan.Owner]bool{}},
	}
	for _, name := range names {
		s.drivers[name] = &driverState{name: name, owns: name}
	}
	return s
}

// do runs f while the store is locked.
func (s *store) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *store) addDriver(name, role string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drivers[name] == nil {
		s.drivers[name] = &driverState{name: name}
	}
	s.drivers[name].owns = cmp.Or(role, name)
}

// ownerOf returns the owner of an object of a driver: what a driver makes that holds a role belongs to the role, so that another
// driver can take it over.
func (s *store) ownerOf(driver, uid string) plan.Owner {
	if d := s.drivers[driver]; d != nil {
		driver = d.owns
	}
	return ownerOf(driver, uid)
}

// beginEpoch starts a replay: until every key has been answered, the driver's word ends nothing.
func (s *store) beginEpoch(name string, keys []watch.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drivers[name]
	d.epoch++
	d.prune, d.guarded, d.held, d.passed = false, false, 0, 0
	for _, o := range s.owners {
		if o.item.driver == name {
			o.guarded, o.unheard = false, 0
		}
	}
	d.open = make(map[watch.Key]bool, len(keys))
	for _, key := range keys {
		d.open[key] = true
	}
	if s.standby {
		d.open[standbyKey()] = true
	}
}

// ensureOwner returns the owner of a source object, made if it is new.
func (s *store) ensureOwner(it item, t target, now time.Time) *owner {
	id := s.ownerOf(it.driver, t.uid)
	o := s.owners[id]
	if o == nil {
		o = &owner{id: id, phase: Pending, since: now}
		s.owners[id] = o
	}
	if o.item != it { // new, or taken for an orphan
		drop(s.byItem, o.item, id)
		o.item, o.target = it, t
		add(s.byItem, it, id)
	}
	o.gone = false
	return o
}

// sharedOwner returns the owner of what is claimed.
func (s *store) sharedOwner(now time.Time) *owner {
	id := plan.Owner{Driver: sharedDriver}
	o := s.owners[id]
	if o == nil {
		o = &owner{
			id: id, item: item{driver: sharedDriver}, hasSet: true, phase: Pending, since: now,
			target: target{watch: drivers.Watch{Kind: "Cluster"}, name: "shared resources"},
		}
		s.owners[id] = o
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
	delete(s.keepers, o)
	delete(s.handovers, o.id)
	delete(s.promised, o.id)
	delete(s.northbound.withheld, o.id)
}

// released returns who held something back until all opinions were in, if they are.
func (s *store) released() []item {
	if len(s.keepers) == 0 || !s.complete() {
		return nil
	}
	items := make([]item, 0, len(s.keepers))
	for o := range s.keepers {
		items = append(items, o.item)
	}
	clear(s.keepers)
	return items
}

// ownerItem returns the key of an owner that is known.
func (s *store) ownerItem(id plan.Owner) []item {
	if id.Driver == sharedDriver {
		return []item{{driver: sharedDriver}}
	}
	if o := s.owners[id]; o != nil {
		return []item{o.item}
	}
	return nil
}

// over says whether a replay is over, with what it would end let pass or held.
func (d *driverState) over() bool { return d.prune || d.guarded }

// complete says whether all opinions are in: every driver has answered for every object, within its guard.
func (s *store) complete() bool {
	for _, d := range s.drivers {
		if !d.prune {
			return false
		}
	}
	for _, o := range s.owners {
		if s.silent(o) {
			return false
		}
	}
	return true
}

// silent says whether nobody knows yet what an owner's object should have under the present driver and configuration.
func (s *store) silent(o *owner) bool {
	if o.id.Driver == sharedDriver || o.gone {
		return false
	}
	d := s.drivers[o.item.driver]
	return !o.hasSet || (d != nil && o.good != d.epoch)
}

// unanswered names, for people, some of the objects without an answer.
func (s *store) unanswered() string {
	var names []string
	for _, o := range s.owners {
		if s.silent(o) {
			names = append(names, o.target.String())
		}
	}
	for _, d := range s.drivers {
		if d.epoch == 0 {
			names = append(names, "all of driver "+d.name)
		}
		for key := range d.open {
			names = append(names, key.String())
		}
	}
	return some(sorted(names))
}

// some shows the first three of a list.
func some(names []string) string {
	if len(names) > 3 {
		names = append(names[:3:3], fmt.Sprintf("%d more", len(names)-3))
	}
	return strings.Join(names, ", ")
}

// disabled names a driver that is not enabled and still has resources in the cloud; "" if there is none. What it claimed is
// not known, so nothing that is shared may end.
func (s *store) disabled() string {
	enabled := s.enabled()
	found := ""
	for id := range s.cloud.byOwner {
		if !enabled[id.Driver] && (found == "" || id.Driver < found) {
			found = id.Driver
		}
	}
	return found
}

// enabled are the names that stand on what enabled drivers make.
func (s *store) enabled() map[string]bool {
	enabled := map[string]bool{sharedDriver: true}
	for _, d := range s.drivers {
		enabled[plan.ShortDriver(d.owns)] = true
	}
	return enabled
}

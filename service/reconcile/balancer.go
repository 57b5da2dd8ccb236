package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// Balancer changes load balancers, which take changes one at a time and carry them out some time after.
type Balancer interface {
	// ChangePart applies a step on a part, and returns the load balancer as it will be.
	ChangePart(ctx context.Context, lb plan.Observed, step plan.Step) (plan.Observed, error)
	// FailOver has the provider make what is behind a load balancer anew.
	FailOver(ctx context.Context, id string) error
	// PollLoadBalancers lists them with their statuses and addresses, without parts.
	PollLoadBalancers(ctx context.Context, cluster string) ([]plan.Observed, error)
	// LoadBalancerProviders lists the names of the providers that can be chosen.
	LoadBalancerProviders(ctx context.Context) ([]string, error)
	// InspectLoadBalancers returns them with the statuses of their parts.
	InspectLoadBalancers(ctx context.Context, list []plan.Observed) ([]plan.Observed, error)
}

// trust is what was learned of a provider of load balancers. Nothing of it is kept over a restart.
type trust struct {
	// proven: a load balancer that was made at once with all its parts became ready with all of them.
	proven bool
	// bare: of what a load balancer was made with, the parts never became ready: they are made one by one.
	bare bool
	// noMonitors: likewise, of health monitors only.
	noMonitors bool
	// monitored: likewise proven with health monitors.
	monitored bool
	// early: a load balancer is ready before its parts are.
	early bool
	// noFailover: it cannot, or these credentials must not.
	noFailover bool
}

// balancerState is what the store knows of load balancers beside what the cloud shows.
type balancerState struct {
	providers map[string]*trust
	mendings  map[doubtKey]*mending
	busy      map[string]*busyState // by id
	// away is why the load balancing service could not be read; nothing is done to a load balancer meanwhile.
	away       error
	activation time.Duration
	stillAfter time.Duration
	clock      clock.PassiveClock
}

func newBalancerState() balancerState {
	return balancerState{
		providers: map[string]*trust{}, mendings: map[doubtKey]*mending{}, busy: map[string]*busyState{}, clock: clock.RealClock{},
		activation: 5 * time.Minute, stillAfter: stillAfter,
	}
}

// trustOf returns what is known of a provider; "" is the cloud's default. The store is locked.
func (s *store) trustOf(provider string) *trust {
	t := s.providers[provider]
	if t == nil {
		t = &trust{}
		s.providers[provider] = t
	}
	return t
}

// mending is what was done about a load balancer in ERROR, by identity, so that it outlives a replacement.
type mending struct {
	tries int
	next  time.Time // when something may be done again
	until time.Time // forgotten then, if all is well
}

// busyState is how long a load balancer has been busy.
type busyState struct {
	since   time.Time // it takes no changes
	moved   time.Time // its status, or that of a part, was another one before
	full    bool      // made by this process with all its parts, of which nobody knows yet whether they become ready
	early   bool      // it was ready before its parts
	check   bool      // its parts have to be inspected before it counts as ready
	overdue bool      // told to be stuck
}

const (
	// mendPause is how long a load balancer rests after it was failed over or made anew; it doubles up to mendPauseMax.
	mendPause    = time.Minute
	mendPauseMax = 30 * time.Minute
	// mendMemory is how long a load balancer must be well for its failures to be forgotten.
	mendMemory = 10 * time.Minute
	// stillAfter is how long a ready load balancer's parts may stand still, all of them pending, before they are given up.
	stillAfter = 20 * time.Second
)

// mend says what may be done about a load balancer now, and notes when to look again. The store is locked.
func (s *store) mend(d *plan.Desired, now time.Time) {
	lb, ok := s.cloud.find(d.Identity, d.Kind)
	if !ok {
		return
	}
	condition, _ := plan.ConditionOf(&lb)
	if s.stuck(lb, now) {
		d.Mend = plan.MendReplace
		return
	}
	if condition != plan.Broken && condition != plan.Partial {
		return
	}
	m := s.mendings[identityKey(d.Kind, d.Identity)]
	switch {
	case m != nil && now.Before(m.next):
	case condition == plan.Broken && (m == nil || m.tries == 0) && !s.trustOf(provider(lb)).noFailover:
		d.Mend = plan.MendFailover
	default:
		d.Mend = plan.MendReplace
	}
}

// mended notes that something was done about a load balancer in ERROR.
func (s *store) mended(step plan.Step, now time.Time) {
	key := identityKey(step.Kind, step.Identity)
	m := s.mendings[key]
	if m == nil {
		m = &mending{}
		s.mendings[key] = m
	}
	m.tries++
	m.next = now.Add(min(mendPause<<min(m.tries-1, 10), mendPauseMax))
	m.until = now.Add(max(mendMemory, 2*m.next.Sub(now)))
}

func provider(lb plan.Observed) string {
	text, _ := lb.Attrs["provider"].(string)
	return text
}

// stuck says whether parts of a load balancer that was made at once stay pending for good. Some releases of Octavia make a load
// balancer ready and never its parts; the provider is then not trusted with parts any more.
func (s *store) stuck(lb plan.Observed, now time.Time) bool {
	busy := s.busy[lb.ID]
	if lb.Status != statusActive {
		return false
	}
	pending, monitors, others := pendingParts(lb)
	if pending == 0 {
		return false
	}
	t := s.trustOf(provider(lb))
	if t.bare || t.noMonitors && pending == monitors {
		return busy == nil || now.Sub(busy.moved) >= s.stillAfter/10
	}
	if busy == nil || now.Sub(busy.moved) < s.stillAfter {
		return false
	}
	switch {
	case pending == monitors && others > 0:
		t.noMonitors = true
	case others == 0:
		t.bare = true
	default: // some are ready: it goes on, however slowly
		return now.Sub(busy.moved) >= s.activation
	}
	return true
}

// pendingParts counts the parts that are being created, the health monitors among them, and the parts that are ready.
func pendingParts(lb plan.Observed) (pending, monitors, others int) {
	count := func(doc map[string]any, monitor bool) {
		switch status, _ := doc["provisioning_status"].(string); {
		case doc == nil:
		case status == "PENDING_CREATE":
			pending++
			if monitor {
				monitors++
			}
		default:
			others++
		}
	}
	for _, element := range listOf(lb.Attrs["listeners"]) {
		listener, _ := element.(map[string]any)
		count(listener, false)
	}
	for _, element := range listOf(lb.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		count(pool, false)
		monitor, _ := pool["healthmonitor"].(map[string]any)
		count(monitor, true)
	}
	return pending, monitors, others
}

// balance prepares what a load balancer should be for the plan. The store is locked.
func (s *store) balance(w *want, d *plan.Desired) {
	s.mend(d, s.clock.Now())
	pools := slices.Clone(listOf(d.Attrs["pools"]))
	for i, element := range pools {
		pool, _ := element.(map[string]any)
		members := listOf(pool["members"])
		if len(members) == 0 {
			continue
		}
		placed := make([]any, len(members))
		for j, element := range members {
			placed[j] = s.placeMember(w, element)
		}
		pool = maps.Clone(pool)
		pool["members"] = placed
		pools[i] = pool
	}
	if pools != nil {
		d.Attrs["pools"] = pools
	}
}

// placeMember gives a member whose subnet is one of several that stand for an expandable one the subnet that holds its address.
func (s *store) placeMember(w *want, element any) any {
	member, _ := element.(map[string]any)
	ref, ok := member["subnet_id"].(drivers.Ref)
	if !ok {
		return element
	}
	subnet, ok := s.referred(w, ref)
	if !ok || subnet.Kind != drivers.KindSubnet || holds(subnet, member["address"]) {
		return element
	}
	network, _ := subnet.Attrs["network_id"].(string)
	for _, other := range s.cloud.subnetsOf(network) {
		if other.Identity.Owner == subnet.Identity.Owner && holds(other, member["address"]) {
			member = maps.Clone(member)
			member["subnet_id"] = other.ID
			return member
		}
	}
	return element
}

func holds(subnet plan.Observed, address any) bool {
	prefix, errPrefix := netip.ParsePrefix(textOf(subnet.Attrs["cidr"]))
	addr, errAddr := netip.ParseAddr(textOf(address))
	return errPrefix == nil && errAddr == nil && prefix.Contains(addr)
}

// createBalancer makes a load balancer with as many of its parts as its provider is trusted with, or can take.
func (e *Engine) createBalancer(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	wanted := step.Attrs
	asked, _ := wanted["provider"].(string)
	var t trust
	e.store.do(func() { t = *e.store.trustOf(asked) })
	step.Attrs = entrusted(wanted, t)
	made, err := e.cloud.Create(ctx, step.Kind, step.Identity, step.Attrs)
	if openstack.Classify(err) == openstack.ClassUnsupported && hasParts(step.Attrs) {
		// One of the parts is more than the provider can do: it is told which when they are made one by one.
		step.Attrs = entrusted(wanted, trust{bare: true})
		made, err = e.cloud.Create(ctx, step.Kind, step.Identity, step.Attrs)
	}
	if err != nil {
		return made, err
	}
	now := e.clock.Now()
	e.store.do(func() {
		e.store.busy[made.ID] = &busyState{since: now, moved: now, full: hasParts(step.Attrs)}
		if asked == "" { // what is learned of the default provider is learned of its name
			e.store.providers[""] = e.store.trustOf(provider(made))
		}
	})
	return made, nil
}

// entrusted returns what a create may ask for.
func entrusted(attrs map[string]any, t trust) map[string]any {
	if !t.bare && !t.noMonitors {
		return attrs
	}
	attrs = maps.Clone(attrs)
	if t.bare {
		delete(attrs, "listeners")
		delete(attrs, "pools")
		return attrs
	}
	pools := slices.Clone(listOf(attrs["pools"]))
	for i, element := range pools {
		pool, _ := element.(map[string]any)
		pool = maps.Clone(pool)
		delete(pool, "healthmonitor")
		pools[i] = pool
	}
	attrs["pools"] = pools
	return attrs
}

func hasParts(attrs map[string]any) bool {
	return len(listOf(attrs["listeners"]))+len(listOf(attrs["pools"])) > 0
}

// changeBalancer applies a step on a load balancer that exists.
func (e *Engine) changeBalancer(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	var (
		lb plan.Observed
		ok bool
	)
	e.store.do(func() {
		var found *entry
		if found, ok = e.store.cloud.entries[resourceKey{step.Kind, step.ID}]; ok {
			lb = found.Observed
		}
	})
	if !ok {
		return plan.Observed{}, fmt.Errorf("load balancer %s is not there any more", step.ID)
	}
	var (
		changed plan.Observed
		err     error
	)
	switch {
	case step.Part != nil:
		changed, err = e.cloud.ChangePart(ctx, lb, *step)
	case step.Op == plan.Failover:
		changed = lb
		changed.Status = statusUpdating
		err = e.cloud.FailOver(ctx, step.ID)
	case step.Op == plan.Delete:
		changed = lb
		changed.Status = "PENDING_DELETE"
		err = e.cloud.Delete(ctx, step.Kind, step.ID)
	default:
		changed, err = e.cloud.Update(ctx, step.Kind, step.ID, 0, step.Attrs)
		if err == nil {
			changed.Attrs = maps.Clone(changed.Attrs)
			for _, name := range []string{"listeners", "pools", "vip_sg_ids"} {
				changed.Attrs[name] = lb.Attrs[name]
			}
		}
	}
	if err != nil {
		return plan.Observed{}, err
	}
	now := e.clock.Now()
	e.store.do(func() {
		if was, _ := plan.ConditionOf(&lb); was == plan.Broken || was == plan.Partial {
			e.store.mended(*step, now)
		}
	})
	e.takeBalancers([]plan.Observed{changed})
	e.store.do(func() {
		if b := e.store.busy[changed.ID]; b != nil && step.Part != nil && step.Op == plan.Create {
			b.check = true
		}
	})
	return changed, nil
}

const (
	statusActive   = "ACTIVE"
	statusUpdating = "PENDING_UPDATE"
)

// afterBalancer brings what is known up to date with a refused step on a load balancer. It says whether another plan may do.
func (e *Engine) afterBalancer(ctx context.Context, fail stepError) error {
	step := fail.step
	switch openstack.Classify(fail.err) { //nolint:exhaustive // the others are as for every resource
	case openstack.ClassBusy:
		return e.afterBusy(ctx, fail)
	case openstack.ClassForbidden, openstack.ClassUnsupported, openstack.ClassTerminal:
		// Which of the three it is depends on the release.
		if step.Op == plan.Failover {
			e.store.do(func() {
				if found := e.store.cloud.entries[resourceKey{step.Kind, step.ID}]; found != nil {
					e.store.trustOf(provider(found.Observed)).noFailover = true
				}
			})
			return mendedError{fail}
		}
	case openstack.ClassRetry, openstack.ClassAmbiguous, openstack.ClassStale, openstack.ClassNotFound:
		// It may have been done, or be not what was known.
		if step.ID == "" {
			return nil
		}
		if _, err := e.reread(ctx, step.Kind, step.ID); err != nil {
			return stepError{step: step, err: err}
		}
		if class := openstack.Classify(fail.err); class == openstack.ClassStale || class == openstack.ClassNotFound {
			return mendedError{fail}
		}
		return fail
	}
	return nil
}

// afterBusy learns what keeps a load balancer from taking changes.
func (e *Engine) afterBusy(ctx context.Context, fail stepError) error {
	var lb plan.Observed
	e.store.do(func() {
		if found := e.store.cloud.entries[resourceKey{fail.step.Kind, fail.step.ID}]; found != nil {
			lb = found.Observed
		}
	})
	if lb.ID == "" {
		return mendedError{fail}
	}
	list, err := e.cloud.InspectLoadBalancers(ctx, []plan.Observed{lb})
	if err != nil {
		return stepError{step: fail.step, err: err}
	}
	e.takeBalancers(list)
	for _, lb := range list {
		if condition, _ := plan.ConditionOf(&lb); condition != plan.Ready && condition != plan.Partial {
			continue
		}
		if part, locked := lockedPool(lb); locked && fail.step.Part != nil && fail.step.Part.Kind == plan.Listener {
			return e.unlock(ctx, fail, lb, part)
		}
		return fail // it was busy for a moment: again, a little later
	}
	return mendedError{fail}
}

// lockedPool returns a pool of a listener that is left PENDING_UPDATE though the load balancer is done.
func lockedPool(lb plan.Observed) (plan.Part, bool) {
	for _, element := range listOf(lb.Attrs["listeners"]) {
		listener, _ := element.(map[string]any)
		if id := textOf(listener["default_pool_id"]); id != "" && textOf(listener["provisioning_status"]) == statusUpdating {
			return plan.Part{Kind: plan.Pool, Name: textOf(listener["default_pool"]), ID: id}, true
		}
	}
	return plan.Part{}, false
}

// unlock has a provider finish with the listeners of a pool, by a change of the pool that changes nothing: OVN's leaves them
// PENDING_UPDATE after a change of the pool's health monitor.
func (e *Engine) unlock(ctx context.Context, fail stepError, lb plan.Observed, pool plan.Part) error {
	changed, err := e.cloud.ChangePart(ctx, lb, plan.Step{
		Op: plan.Update, Kind: lb.Kind, Identity: lb.Identity, ID: lb.ID, Part: &pool, Attrs: map[string]any{"name": pool.Name},
	})
	if err != nil {
		return stepError{step: fail.step, err: err}
	}
	e.takeBalancers([]plan.Observed{changed})
	return mendedError{fail}
}

// troubles says, for people, which load balancers of an owner are in ERROR, ignore something, or have been busy for too long. The
// store is locked.
func (s *store) troubles(id plan.Owner, p plan.Plan) []string {
	texts := slices.Clone(p.Notices)
	for key := range s.cloud.byOwner[id] {
		if key.kind != drivers.KindLoadBalancer {
			continue
		}
		lb := s.cloud.entries[key].Observed
		condition, why := plan.ConditionOf(&lb)
		switch b := s.busy[key.id]; {
		case condition == plan.Broken || condition == plan.Partial:
			text := fmt.Sprintf("load balancer %s is not as it should be: %s", lb.ID, why)
			if m := s.mendings[identityKey(key.kind, lb.Identity)]; m != nil && m.tries > 0 {
				text += fmt.Sprintf("; it was made anew or failed over %d times, next at %s", m.tries, m.next.Format(time.TimeOnly))
			}
			texts = append(texts, text)
		case b != nil && b.overdue:
			texts = append(texts, fmt.Sprintf("load balancer %s has not become ready since %s: %s; it is looked at every now and then, and "+
				"nothing else can be done but by an administrator of the cloud", lb.ID, b.since.Format(time.TimeOnly), why))
		}
	}
	return sorted(texts)
}

// vet refuses to end a load balancer for the sake of another provider that the cloud does not have.
func (e *Engine) vet(ctx context.Context, o *owner, step plan.Step) error {
	var wanted, present string
	e.store.do(func() {
		for _, r := range o.set.Resources {
			spec, ok := r.Spec.(drivers.LoadBalancer)
			if ok && spec.Provider != nil && plan.LogicalName(step.Kind, r.Name) == step.Identity.Name {
				wanted = *spec.Provider
			}
		}
		if found := e.store.cloud.entries[resourceKey{step.Kind, step.ID}]; found != nil {
			present = provider(found.Observed)
		}
	})
	if wanted == "" || present == "" || wanted == present {
		return nil
	}
	names, err := e.cloud.LoadBalancerProviders(ctx)
	if err != nil {
		return fmt.Errorf("looking whether the cloud has provider %s: %w", wanted, err)
	}
	if !slices.Contains(names, wanted) {
		return terminalError{fmt.Errorf("the load balancer of provider %s stays: the cloud has no provider %q, but %s",
			present, wanted, strings.Join(names, ", "))}
	}
	return nil
}

// mendAgain is how long it is until something may be done about a load balancer of an owner that is in ERROR; 0: nothing is.
func (e *Engine) mendAgain(o *owner) time.Duration {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	now := e.clock.Now()
	var wait time.Duration
	for key := range e.store.cloud.byOwner[o.id] {
		found := e.store.cloud.entries[key]
		if key.kind != drivers.KindLoadBalancer {
			continue
		}
		condition, _ := plan.ConditionOf(&found.Observed)
		m := e.store.mendings[identityKey(key.kind, found.Identity)]
		if m == nil || condition != plan.Broken && condition != plan.Partial || !now.Before(m.next) {
			continue
		}
		if left := m.next.Sub(now); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// takeBalancers takes load balancers over as they are now, and wakes who waits for them and whose they are.
func (e *Engine) takeBalancers(list []plan.Observed) {
	if len(list) == 0 {
		return
	}
	var woken []item
	now := e.clock.Now()
	e.store.do(func() {
		for _, lb := range list {
			woken = append(woken, e.store.takeBalancer(lb, now)...)
		}
	})
	e.wakeAll(woken)
	e.requestPoll()
}

func (s *store) takeBalancer(lb plan.Observed, now time.Time) []item {
	var before plan.Observed
	if old := s.cloud.entries[resourceKey{lb.Kind, lb.ID}]; old != nil {
		before = old.Observed
	}
	woken := s.arrived(lb)
	return append(woken, s.noteBalancer(before, lb, now)...)
}

// noteBalancer keeps the account of what is busy, and returns who must look again.
func (s *store) noteBalancer(before, lb plan.Observed, now time.Time) []item {
	condition, _ := plan.ConditionOf(&lb)
	b := s.busy[lb.ID]
	if condition != plan.Busy && condition != plan.Leaving {
		if b != nil && condition == plan.Ready {
			s.learn(b, lb)
		}
		delete(s.busy, lb.ID)
		if b == nil && before.Status == lb.Status {
			return nil
		}
	} else {
		if b == nil {
			b = &busyState{since: now, moved: now}
			s.busy[lb.ID] = b
		}
		b.early = b.early || condition == plan.Busy && lb.Status == statusActive
		if progress(before) != progress(lb) {
			b.moved = now
		}
		if before.Status == lb.Status && b.overdue {
			return nil
		}
	}
	return append(s.wake(waitBusy(lb.ID)), s.ownerItem(lb.Identity.Owner)...)
}

// learn takes down what a load balancer that has become ready says of its provider.
func (s *store) learn(b *busyState, lb plan.Observed) {
	t := s.trustOf(provider(lb))
	t.early = t.early || b.early
	if !b.full {
		return
	}
	t.proven = true
	for _, element := range listOf(lb.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		t.monitored = t.monitored || pool["healthmonitor"] != nil
	}
}

// doubted says whether a load balancer that is ready may have parts that are not.
func (s *store) doubted(lb plan.Observed) bool {
	pending, monitors, _ := pendingParts(lb)
	t := s.trustOf(provider(lb))
	return pending > 0 && (!t.proven || t.early || monitors > 0 && !t.monitored) || s.busy[lb.ID].check
}

// progress is a text that changes when a status does.
func progress(lb plan.Observed) string {
	var b strings.Builder
	b.WriteString(lb.Status)
	for _, list := range []string{"listeners", "pools"} {
		for _, element := range listOf(lb.Attrs[list]) {
			part, _ := element.(map[string]any)
			monitor, _ := part["healthmonitor"].(map[string]any)
			fmt.Fprint(&b, part["id"], part["provisioning_status"], monitor["provisioning_status"])
			for _, m := range listOf(part["members"]) {
				member, _ := m.(map[string]any)
				fmt.Fprint(&b, member["provisioning_status"])
			}
		}
	}
	return b.String()
}

// waitBusy is a load balancer that takes no changes.
func waitBusy(id string) waitKey { return waitKey{what: "busy", name: id} }

// recount keeps the account of busy load balancers after all were listed, and returns who must look again. err says that they
// could not be.
func (s *store) recount(now time.Time, err error) []item {
	var woken []item
	back := s.away != nil && err == nil
	s.away = err
	known := map[string]bool{}
	for _, lb := range s.cloud.ofKind(drivers.KindLoadBalancer) {
		known[lb.ID] = true
		woken = append(woken, s.noteBalancer(lb, lb, now)...)
	}
	maps.DeleteFunc(s.busy, func(id string, _ *busyState) bool { return !known[id] })
	maps.DeleteFunc(s.mendings, func(_ doubtKey, m *mending) bool { return now.After(m.until) })
	if back {
		for _, o := range s.owners {
			if slices.ContainsFunc(o.set.Resources, func(r drivers.Resource) bool { return r.Spec.Kind() == drivers.KindLoadBalancer }) {
				woken = append(woken, o.item)
			}
		}
	}
	return woken
}

// afterObservedBalancers has the load balancers looked at again soon, if they could not be now or some of them are busy.
func (e *Engine) afterObservedBalancers(ctx context.Context, err error) {
	if err != nil {
		if ctx.Err() == nil {
			e.log.WarnContext(ctx, "the load balancing service could not be read; nothing is concluded from it", "error", err)
		}
		e.driftAfter(e.config.SlowRetry)
	}
	e.requestPoll()
}

// membersAndVIPs lists the parts of a load balancer that name subnets.
func membersAndVIPs(o plan.Observed) [][]any {
	if o.Kind != drivers.KindLoadBalancer {
		return nil
	}
	lists := [][]any{listOf(o.Attrs["additional_vips"])}
	for _, element := range listOf(o.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		lists = append(lists, listOf(pool["members"]))
	}
	return lists
}

// keepParts drops from the parts of a load balancer what changes by itself and nobody compares.
func keepParts(attrs map[string]any) {
	trim := func(doc map[string]any) map[string]any {
		doc = maps.Clone(doc)
		for _, name := range []string{
			"operating_status", "updated_at", "created_at", "tenant_id", "project_id", "tags", "loadbalancers", "l7policies", "insert_headers",
			"listeners", "tls_container_ref", "sni_container_refs",
		} {
			delete(doc, name)
		}
		return doc
	}
	parts := func(doc map[string]any, name string, f func(map[string]any) map[string]any) {
		list, ok := doc[name].([]any)
		if !ok {
			return
		}
		out := make([]any, len(list))
		for i, element := range list {
			part, _ := element.(map[string]any)
			out[i] = f(part)
		}
		doc[name] = out
	}
	parts(attrs, "listeners", trim)
	parts(attrs, "pools", func(pool map[string]any) map[string]any {
		pool = trim(pool)
		if monitor, ok := pool["healthmonitor"].(map[string]any); ok {
			pool["healthmonitor"] = trim(monitor)
		}
		parts(pool, "members", trim)
		return pool
	})
}

// withhold takes out of a plan what concerns load balancers while nobody knows what there is of them. The store is locked.
func (s *store) withhold(o *owner, p *plan.Plan) {
	if s.away == nil {
		return
	}
	concerned := slices.ContainsFunc(o.set.Resources, func(r drivers.Resource) bool { return r.Spec.Kind() == drivers.KindLoadBalancer })
	p.Steps = slices.DeleteFunc(p.Steps, func(step plan.Step) bool {
		concerned = concerned || step.Kind == drivers.KindLoadBalancer
		return step.Kind == drivers.KindLoadBalancer
	})
	if concerned {
		p.Pending = append(p.Pending, plan.Wait{Message: fmt.Sprintf("waiting for the load balancing service: %v", s.away)})
	}
}

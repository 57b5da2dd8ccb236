package openstack

import (
	"context"
	"net/url"
	"slices"
	"sync"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// fewSearches is up to how many searches for one identity are made one by one; more are answered by one list of the cluster.
const fewSearches = 2

// finder answers searches for identities. After a bulk create that was cut there are many at once: those that wait while one
// is answered are answered together by one list, which begins after the last of them was asked.
type finder struct {
	cloud *Cloud
	kind  kind

	mu      sync.Mutex
	waiting []*search
	running bool
}

type search struct {
	identity plan.Identity
	gone     <-chan struct{}
	found    []plan.Observed
	err      error
	done     chan struct{}
}

// ListIdentity returns the resources of one kind that carry exactly this identity, whatever its policy: usually none or one.
func (c *Cloud) ListIdentity(ctx context.Context, name drivers.Kind, identity plan.Identity) ([]plan.Observed, error) {
	at, _, err := c.service(opList, name, identity.Name)
	if err != nil {
		return nil, err
	}
	if at != c {
		return c.balancers.find(ctx, identity)
	}
	return c.listIdentity(ctx, name, identity)
}

// find returns the load balancers of one identity, with their parts.
func (b *balancers) find(ctx context.Context, identity plan.Identity) ([]plan.Observed, error) {
	found, err := b.listIdentity(ctx, drivers.KindLoadBalancer, identity)
	for i := range found {
		if err == nil && bare(found[i]) {
			found[i], err = b.get(ctx, found[i].ID)
		}
	}
	return found, err
}

// bare says whether a load balancer's document only names its parts.
func bare(lb plan.Observed) bool {
	for _, name := range []string{"listeners", "pools"} {
		for _, element := range listAt(lb.Attrs, name) {
			if part, _ := element.(map[string]any); textOf(part, "name") == "" {
				return true
			}
		}
	}
	return false
}

func (c *Cloud) listIdentity(ctx context.Context, name drivers.Kind, identity plan.Identity) ([]plan.Observed, error) {
	f := c.finders[name]
	s := &search{identity: identity, gone: ctx.Done(), done: make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, s)
	if !f.running {
		f.running = true
		c.work.Go(func() { f.run(context.WithoutCancel(ctx)) })
	}
	f.mu.Unlock()
	select {
	case <-s.done:
		return s.found, s.err
	case <-ctx.Done():
		return nil, newError(call{op: opList, kind: f.kind, what: identity.Name}, ctx.Err(), false)
	}
}

func (f *finder) run(ctx context.Context) {
	for {
		f.mu.Lock()
		batch := f.waiting
		f.waiting = nil
		if len(batch) == 0 {
			f.running = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		f.answer(ctx, batch)
	}
}

// answer answers a batch of searches and ends early when nobody waits for them any more.
func (f *finder) answer(ctx context.Context, batch []*search) {
	ctx, cancel := context.WithCancel(ctx)
	finished := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for _, s := range batch {
			select {
			case <-s.gone:
			case <-finished:
				return
			}
		}
		cancel()
	})
	clusters := map[string][]*search{}
	for _, s := range batch {
		clusters[s.identity.Cluster] = append(clusters[s.identity.Cluster], s)
	}
	for cluster, searches := range clusters {
		if len(searches) <= fewSearches {
			for _, s := range searches {
				s.found, s.err = f.one(ctx, s.identity)
			}
		} else {
			f.together(ctx, cluster, searches)
		}
	}
	close(finished)
	watch.Wait()
	cancel()
	for _, s := range batch {
		close(s.done)
	}
}

func (f *finder) together(ctx context.Context, cluster string, searches []*search) {
	all, err := f.cloud.List(ctx, f.kind.name, cluster)
	byKey := make(map[plan.Key][]plan.Observed, len(all))
	for _, o := range all {
		byKey[o.Identity.Key()] = append(byKey[o.Identity.Key()], o)
	}
	for _, s := range searches {
		s.found, s.err = byKey[s.identity.Key()], err
	}
}

// one searches for one identity by tags, and by the description that a create has.
func (f *finder) one(ctx context.Context, identity plan.Identity) ([]plan.Observed, error) {
	want := identity.Key()
	keep := func(o plan.Observed) bool { return o.Managed && o.Identity.Key() == want && o.Kind == f.kind.name }
	query := url.Values{"description": {identity.Description()}}
	if f.cloud.projectID != "" {
		query.Set("project_id", f.cloud.projectID)
	}
	found, err := f.cloud.pages(ctx, f.kind, query, keep)
	if err != nil || !f.kind.taggable {
		return found, err
	}
	query.Del("description")
	tags := identity.Tags()[:3] // not the policy
	query.Set("tags", tags[0]+","+tags[1]+","+tags[2])
	tagged, err := f.cloud.pages(ctx, f.kind, query, keep)
	if err != nil {
		return nil, err
	}
	for _, o := range tagged {
		if !slices.ContainsFunc(found, func(other plan.Observed) bool { return other.ID == o.ID }) {
			found = append(found, o)
		}
	}
	return found, nil
}

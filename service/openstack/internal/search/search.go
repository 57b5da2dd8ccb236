// SPDX-License-Identifier: Apache-2.0

// Package search finds resources by their identities. It must never answer a search by a list that began before it was
// asked.
package search

import (
	"context"
	"net/url"
	"slices"
	"sync"

	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// fewSearches is up to how many searches for one identity are made one by one; more are answered by one list of the
// cluster.
const fewSearches = 2

// Finder answers searches for identities among the resources of one kind. After a bulk create that was cut there are
// many at once: those that wait while one is answered are answered together by one list, which begins after the last of
// them was asked.
type Finder struct {
	Service    *openstack.Service
	Collection openstack.Collection
	Observe    openstack.Observe
	Taggable   bool   // identities are in tags, too
	Project    string // whose resources they are; empty: whoever's
	// All lists what carries a cluster's identity.
	All func(ctx context.Context, cluster string) ([]plan.Observed, error)
	// Go runs what goes on after the first search is answered.
	Go func(work func())

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

// Find returns the resources that carry exactly this identity, whatever its policy. Its error is an *openstack.Error.
func (f *Finder) Find(ctx context.Context, identity plan.Identity) ([]plan.Observed, error) {
	s := &search{identity: identity, gone: ctx.Done(), done: make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, s)
	if !f.running {
		f.running = true
		f.Go(func() { f.run(context.WithoutCancel(ctx)) })
	}
	f.mu.Unlock()
	select {
	case <-s.done:
		return s.found, s.err
	case <-ctx.Done():
		r := openstack.Call{Op: openstack.OpList, Collection: f.Collection, What: identity.Name}
		return nil, openstack.NewError(r, ctx.Err(), false)
	}
}

func (f *Finder) run(ctx context.Context) {
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

// answer answers a batch of searches and ends early when no caller waits for them any more.
func (f *Finder) answer(ctx context.Context, batch []*search) {
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

func (f *Finder) together(ctx context.Context, cluster string, searches []*search) {
	all, err := f.All(ctx, cluster)
	byKey := make(map[plan.Key][]plan.Observed, len(all))
	for _, o := range all {
		byKey[o.Identity.Key()] = append(byKey[o.Identity.Key()], o)
	}
	for _, s := range searches {
		s.found, s.err = byKey[s.identity.Key()], err
	}
}

// one searches for one identity by tags, and by the description that a create has.
func (f *Finder) one(ctx context.Context, identity plan.Identity) ([]plan.Observed, error) {
	want := identity.Key()
	keep := func(o plan.Observed) bool {
		return o.Managed && o.Identity.Key() == want && o.Kind == f.Collection.Kind
	}
	query := url.Values{"description": {identity.Description()}}
	if f.Project != "" {
		query.Set("project_id", f.Project)
	}
	found, err := f.Service.Pages(ctx, f.Collection, query, f.Observe, keep)
	if err != nil || !f.Taggable {
		return found, err
	}
	query.Del("description")
	tags := identity.Tags()[:3] // not the policy
	query.Set("tags", tags[0]+","+tags[1]+","+tags[2])
	tagged, err := f.Service.Pages(ctx, f.Collection, query, f.Observe, keep)
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

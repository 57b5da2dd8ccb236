// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/watch"
)

// result is what became of one reconcile of a key, and so when it is reconciled again.
type result struct {
	// requeueAfter is the time after which the key is reconciled again though nothing woke it; 0 is never.
	requeueAfter time.Duration
	// backoff asks for another try after a time that grows with every failure.
	backoff bool
}

// sooner returns the result that reconciles the key again first: backoff begins with the shortest time.
func sooner(a, b result) result {
	switch {
	case a.backoff || b == (result{}):
		return a
	case b.backoff || a.requeueAfter == 0 || b.requeueAfter < a.requeueAfter:
		return b
	}
	return a
}

// keyQueue feeds the keys of one driver to a bounded number of goroutines, a key never to two at once. Every driver
// has its own, so that a burst of one never delays another. It has goroutines of its own only while it runs.
type keyQueue struct {
	name        string
	concurrency int
	config      Config
	clock       clock.WithTickerAndDelayedExecution
	metrics     workqueue.MetricsProvider
	reconciles  activity

	mu    sync.Mutex
	early map[watch.Key]bool // what came before run
	queue workqueue.TypedRateLimitingInterface[watch.Key]
}

func (e *Engine) newKeyQueue(name string, concurrency int) *keyQueue {
	return &keyQueue{
		name: name, concurrency: concurrency, config: e.config, clock: e.clock, metrics: e.metrics.queues,
		early: map[watch.Key]bool{},
	}
}

func (q *keyQueue) add(key watch.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue == nil {
		q.early[key] = true
		return
	}
	q.queue.Add(key)
}

// open makes the queue and fills in what came before.
func (q *keyQueue) open() workqueue.TypedRateLimitingInterface[watch.Key] {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = workqueue.NewTypedRateLimitingQueueWithConfig(jittered{
		workqueue.NewTypedItemExponentialFailureRateLimiter[watch.Key](q.config.BackoffBase, q.config.BackoffMax),
	}, workqueue.TypedRateLimitingQueueConfig[watch.Key]{Name: q.name, Clock: q.clock, MetricsProvider: q.metrics})
	for key := range q.early {
		q.queue.Add(key)
	}
	q.early = nil
	return q.queue
}

// jittered spreads tries, so that keys that failed together do not come back together for ever. There is no bound for
// all keys: what the cloud bears is known better by the client, which also gathers their requests; a bucket here
// would make one key that fails once wait behind ten thousand.
type jittered struct {
	workqueue.TypedRateLimiter[watch.Key]
}

func (j jittered) When(key watch.Key) time.Duration {
	d := j.TypedRateLimiter.When(key)
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // jitter
}

// run works until ctx ends and everything under way has returned. The work is given its own context.
func (q *keyQueue) run(ctx, working context.Context, work func(context.Context, watch.Key) result) {
	queue := q.open()
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	var under sync.WaitGroup
	workers := make(chan struct{}, q.concurrency)
	for {
		key, shutdown := queue.Get()
		if shutdown {
			break
		}
		workers <- struct{}{}
		under.Go(func() {
			defer func() { <-workers }()
			q.reconciles.do(func() { requeue(queue, key, work(working, key)) })
		})
	}
	under.Wait()
}

func requeue(queue workqueue.TypedRateLimitingInterface[watch.Key], key watch.Key, r result) {
	switch {
	case r.backoff:
		queue.AddRateLimited(key)
	case r.requeueAfter > 0:
		queue.Forget(key)
		queue.AddAfter(key, r.requeueAfter)
	default:
		queue.Forget(key)
	}
	queue.Done(key)
}

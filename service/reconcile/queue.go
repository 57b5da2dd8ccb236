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

// result is what became of one pass over a key, and so when it is looked at again.
type result struct {
	// again is the time after which the key is looked at again though nothing woke it; 0 is never.
	again time.Duration
	// backoff asks for another try after a time that grows with every failure.
	backoff bool
}

// keyQueue feeds the keys of one driver to a bounded number of goroutines, a key never to two at once. Every driver has its
// own, so that a burst of one never delays another.
type keyQueue struct {
	queue       workqueue.TypedRateLimitingInterface[watch.Key]
	concurrency int
}

func newKeyQueue(name string, concurrency int, config Config, clk clock.WithTickerAndDelayedExecution) *keyQueue {
	return &keyQueue{
		concurrency: concurrency,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(jittered{
			workqueue.NewTypedItemExponentialFailureRateLimiter[watch.Key](config.BackoffBase, config.BackoffMax),
		}, workqueue.TypedRateLimitingQueueConfig[watch.Key]{Name: name, Clock: clk}),
	}
}

// jittered spreads tries, so that keys that failed together do not come back together for ever. There is no bound for all
// keys: what the cloud bears is known better by the client, which also gathers their requests; a bucket here would make one
// key that fails once wait behind ten thousand.
type jittered struct {
	workqueue.TypedRateLimiter[watch.Key]
}

func (j jittered) When(key watch.Key) time.Duration {
	d := j.TypedRateLimiter.When(key)
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // jitter
}

func (q *keyQueue) add(key watch.Key) { q.queue.Add(key) }

// run works until ctx ends and everything under way has returned. The work is given its own context.
func (q *keyQueue) run(ctx, working context.Context, work func(context.Context, watch.Key) result) {
	stop := context.AfterFunc(ctx, q.queue.ShutDown)
	defer stop()
	var under sync.WaitGroup
	slots := make(chan struct{}, q.concurrency)
	for {
		key, shutdown := q.queue.Get()
		if shutdown {
			break
		}
		slots <- struct{}{}
		under.Go(func() {
			defer func() { <-slots }()
			q.settle(key, work(working, key))
		})
	}
	under.Wait()
}

func (q *keyQueue) settle(key watch.Key, r result) {
	switch {
	case r.backoff:
		q.queue.AddRateLimited(key)
	case r.again > 0:
		q.queue.Forget(key)
		q.queue.AddAfter(key, r.again)
	default:
		q.queue.Forget(key)
	}
	q.queue.Done(key)
}

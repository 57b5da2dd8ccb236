package reconcile

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
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
	limiter := workqueue.NewTypedWithMaxWaitRateLimiter(workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[watch.Key](config.BackoffBase, config.BackoffMax),
		&workqueue.TypedBucketRateLimiter[watch.Key]{Limiter: rate.NewLimiter(rate.Limit(100), 1000)},
	), config.BackoffMax)
	return &keyQueue{
		concurrency: concurrency,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[watch.Key]{
			Name: name, Clock: clk,
		}),
	}
}

func (q *keyQueue) add(key watch.Key) { q.queue.Add(key) }

// run works until ctx ends and everything under way has returned.
func (q *keyQueue) run(ctx context.Context, work func(context.Context, watch.Key) result) {
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
			q.settle(key, work(ctx, key))
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

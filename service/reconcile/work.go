// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"strings"
	"sync/atomic"
)

// Work is how a queue or a loop of the engine stands, for who watches over its progress.
type Work struct {
	Name string
	// Held is how much waits to be done now or is under way.
	Held int
	// Ended is how often something has ended so far, well or not.
	Ended uint64
}

// activity counts what is under way and what has ended.
type activity struct {
	under atomic.Int64
	ended atomic.Uint64
}

func (a *activity) do(f func()) {
	a.under.Add(1)
	defer func() {
		a.under.Add(-1)
		a.ended.Add(1)
	}()
	f()
}

// Work tells of every queue and loop, by name. It takes the locks of the queues, and none that is held while
// something is done.
func (e *Engine) Work() []Work {
	e.runMu.Lock()
	queues := []*keyQueue{e.shared, e.leavings}
	for _, w := range e.watchers {
		queues = append(queues, w.queue)
	}
	e.runMu.Unlock()
	list := make([]Work, 0, len(queues)+1)
	for _, q := range queues {
		list = append(list, q.work())
	}
	list = append(list, Work{"drift check", int(e.observing.under.Load()), e.observing.ended.Load()})
	slices.SortFunc(list, func(a, b Work) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (q *keyQueue) work() Work {
	q.mu.Lock()
	queue := q.queue
	q.mu.Unlock()
	w := Work{Name: "queue " + q.name, Ended: q.reconciles.ended.Load()}
	if queue != nil {
		w.Held = queue.Len() + int(q.reconciles.under.Load())
	}
	return w
}

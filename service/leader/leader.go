// SPDX-License-Identifier: Apache-2.0

// Package leader elects which of several processes works, by a Kubernetes Lease. It must never let a process believe
// that it leads for longer than the others believe it: what it says is bound to the time at which the last renewal
// was sent.
//
//	standing by ──the Lease is free or has expired──▶ leading ──asked to end──▶ work ends, then the Lease is released
//	     ▲                                               │
//	     └── work is broken off ◀── not renewed in time ─┘
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// ErrLost is the cause with which the contexts of work end when the Lease could not be renewed in time.
var ErrLost = errors.New("the Lease could not be renewed in time")

// ErrStalled is the cause where this process made no progress.
var ErrStalled = errors.New("this process makes no progress, and gives leadership up")

// Config says which Lease is contended for, and how.
type Config struct {
	// REST says how the API server is reached.
	REST *rest.Config
	// Namespace and Name are the Lease's.
	Namespace, Name string
	// Identity tells this process from every other; empty makes one of the host's name and a random part.
	Identity string
	// Duration is how long the others leave a Lease alone that is not renewed; whole seconds.
	Duration time.Duration
	// RenewDeadline is how long after its last renewal a leader ends its work; shorter than Duration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals, or two looks at whether the Lease is free.
	RetryPeriod time.Duration
	// Stalled names what of this process makes no progress; a leader of which something does not gives the Lease up. It
	// must not block. Nil: nothing is asked.
	Stalled func() []string
	Logger  *slog.Logger
}

// Validate says what cannot be, in the words of the options.
func (c Config) Validate() error {
	switch {
	case c.Name == "" || c.Namespace == "":
		return errors.New("[kubernetes] lease_name and lease_namespace must not be empty")
	case c.Duration < time.Second || c.Duration%time.Second != 0:
		return fmt.Errorf("[kubernetes] lease_duration is %s: a Lease counts in whole seconds", c.Duration)
	case c.RenewDeadline >= c.Duration:
		return fmt.Errorf("[kubernetes] lease_renew_deadline (%s) must be less than lease_duration (%s), or two would "+
			"lead at once",
			c.RenewDeadline, c.Duration)
	case float64(c.RenewDeadline) <= leaderelection.JitterFactor*float64(c.RetryPeriod):
		return fmt.Errorf("[kubernetes] lease_renew_deadline (%s) must be more than %g times lease_retry_period (%s)",
			c.RenewDeadline, leaderelection.JitterFactor, c.RetryPeriod)
	}
	return nil
}

// Work is what a leader does. It is to begin nothing new once ctx has ended, and to return as soon as what is under
// way has ended; once lease has ended it must stop at once, because another may lead. lease outlives ctx while work
// is asked to end.
type Work func(ctx, lease context.Context)

// Status is how a candidate stands.
type Status struct {
	Identity string    `json:"identity"`
	Lease    string    `json:"lease"`  // namespace/name
	Holder   string    `json:"holder"` // who leads as far as is known; empty: none
	Leading  bool      `json:"leading"`
	Since    time.Time `json:"since"` // of this holder, as far as this process has seen
	Terms    int       `json:"terms"` // how often this process has begun to lead
	// Problem says why the Lease could not be read or written at the last try; empty when it could.
	Problem string `json:"problem,omitempty"`
	// Refused says that the answer was a refusal: a permission or the namespace is missing, and waiting helps nothing.
	Refused bool `json:"refused,omitempty"`
}

// Candidate contends for a Lease.
type Candidate struct {
	config Config
	client coordinationv1.LeasesGetter

	mu     sync.Mutex
	status Status
	until  time.Time // of the present term
}

// New returns a candidate. It does not contend before Run.
func New(c Config) (*Candidate, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("naming this candidate for leadership: %w", err)
		}
		c.Identity = host + "_" + string(uuid.NewUUID())
	}
	// A connection that is dead must not use up the time that there is for a renewal: each try may make a new one.
	own := rest.CopyConfig(c.REST)
	own.NextProtos = []string{"http/1.1"}
	own.Timeout = max(c.RenewDeadline/2, 500*time.Millisecond)
	client, err := coordinationv1.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server %s: %w", own.Host, err)
	}
	return newCandidate(c, client), nil
}

func newCandidate(c Config, client coordinationv1.LeasesGetter) *Candidate {
	return &Candidate{config: c, client: client, status: Status{Identity: c.Identity, Lease: c.Namespace + "/" + c.Name}}
}

// Status says how the candidate stands.
func (c *Candidate) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Leading = s.Leading && time.Now().Before(c.until)
	return s
}

// Valid says whether this process leads at this moment. It reads the clock, so that a process that was frozen for
// longer than its term knows at once when it goes on.
func (c *Candidate) Valid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status.Leading && time.Now().Before(c.until)
}

// Run contends for the Lease until ctx ends. While this process leads, work runs; it is called anew for each term.
// When Run returns, no work is under way and the Lease is released, if that was possible.
func (c *Candidate) Run(ctx context.Context, work Work) {
	for ctx.Err() == nil {
		c.contend(ctx, work)
	}
}

// contend stands by until this process leads or ctx ends, and leads for one term.
func (c *Candidate) contend(ctx context.Context, work Work) {
	t := newTerm(ctx, c, work)
	defer t.end()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: t, LeaseDuration: c.config.Duration, RenewDeadline: c.config.RenewDeadline, RetryPeriod: c.config.RetryPeriod,
		Name: c.config.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			//nolint:contextcheck // the elector's context ends too early: see lead
			OnStartedLeading: func(context.Context) { t.lead() },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil { // Validate has seen to it that there is none
		c.config.Logger.Error("contending for leadership", "error", err)
		<-ctx.Done()
		return
	}
	elector.Run(t.contending) //nolint:contextcheck // it renews until the work has ended, which is later than ctx
	t.close()                 //nolint:contextcheck // so does this
}

// follow notes who leads.
func (c *Candidate) follow(holder string) {
	c.mu.Lock()
	changed := c.status.Holder != holder
	if changed {
		c.status.Holder, c.status.Since = holder, time.Now()
	}
	c.mu.Unlock()
	if changed && holder != "" && holder != c.config.Identity {
		c.config.Logger.Info("standing by: another one leads", "leader", holder, "lease", c.status.Lease)
	}
}

// problem notes what came of a request for the Lease, and says it once.
func (c *Candidate) problem(err error) {
	text := ""
	if err != nil {
		text = explain(err, c.config)
	}
	c.mu.Lock()
	before := c.status.Problem
	c.status.Problem, c.status.Refused = text, err != nil && refused(err)
	c.mu.Unlock()
	switch {
	case text != "" && before == "":
		c.config.Logger.Warn("the Lease cannot be reached", "lease", c.status.Lease, "error", text)
	case text == "" && before != "":
		c.config.Logger.Info("the Lease can be reached again", "lease", c.status.Lease)
	}
}

// term is one try at leading: the lock that the elector uses, and the work that is done under it.
type term struct {
	resourcelock.LeaseLock
	candidate *Candidate
	work      Work

	asked      context.Context //nolint:containedctx // Run's
	contending context.Context //nolint:containedctx // the elector's: it outlives asked until the work has ended
	stop       context.CancelFunc
	lease      context.Context //nolint:containedctx // ends when the Lease is lost
	lose       context.CancelCauseFunc
	unhook     []func() bool
	done       chan struct{} // closed when the work has ended

	mu     sync.Mutex
	timer  *time.Timer // loses the Lease; nil before it is held
	closed bool        // asked has ended before the Lease was held
	torn   bool        // a try to take the Lease was broken off, and may have worked
}

func newTerm(asked context.Context, c *Candidate, work Work) *term {
	t := &term{
		LeaseLock: resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.config.Namespace, Name: c.config.Name}, Client: c.client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.config.Identity},
		},
		candidate: c, work: work, asked: asked, done: make(chan struct{}),
	}
	apart := context.WithoutCancel(asked)
	// what matters is said by problem and follow
	t.contending, t.stop = context.WithCancel(klog.NewContext(apart, klog.Logger{}))
	t.lease, t.lose = context.WithCancelCause(apart)
	t.unhook = []func() bool{
		context.AfterFunc(asked, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.closed = t.timer == nil; t.closed {
				t.stop()
			}
		}),
		context.AfterFunc(t.lease, t.stop), //nolint:contextcheck // the term's own
	}
	return t
}

// end frees what the term holds.
func (t *term) end() {
	for _, unhook := range t.unhook {
		unhook()
	}
	t.lose(nil)
	t.stop()
}

// lead does the work. It is called once the Lease is held.
func (t *term) lead() {
	defer close(t.done)
	defer t.stop()
	c := t.candidate
	ctx, cancel := context.WithCancelCause(t.asked)
	defer cancel(nil)
	defer context.AfterFunc(t.lease, func() { cancel(context.Cause(t.lease)) })()
	c.config.Logger.Info("leading", "lease", c.status.Lease, "identity", c.config.Identity)
	t.work(ctx, t.lease)
}

// close ends a term: the elector has ended, because the work has, or because the Lease is lost.
func (t *term) close() {
	t.mu.Lock()
	held, torn := t.timer != nil, t.torn
	t.mu.Unlock()
	if !held {
		if torn {
			t.release()
		}
		return
	}
	if t.contending.Err() == nil { // the elector gave up by itself
		t.lose(ErrLost)
	}
	<-t.done
	t.mu.Lock()
	t.timer.Stop()
	t.mu.Unlock()
	c := t.candidate
	lost := context.Cause(t.lease) != nil
	c.mu.Lock()
	c.status.Leading = false
	c.status.Holder, c.status.Since = "", time.Now()
	c.mu.Unlock()
	if lost {
		c.config.Logger.Error("no leader any more; all work was broken off", "lease", c.status.Lease, "error",
			context.Cause(t.lease))
	}
	t.release()
}

// release gives the Lease back, so that another one need not wait until it expires. All work has ended.
func (t *term) release() {
	c := t.candidate
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.asked), max(c.config.RetryPeriod, time.Second))
	defer cancel()
	released := true
	// A renewal that was broken off may still take effect, between reading and writing.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		record, _, err := t.LeaseLock.Get(ctx)
		if err != nil {
			return err
		}
		if released = record.HolderIdentity == c.config.Identity; !released {
			return nil
		}
		now := metav1.Now()
		return t.LeaseLock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	})
	if !released {
		return
	}
	if err != nil {
		c.config.Logger.Warn("the Lease is not released: others wait until it expires", "lease", c.status.Lease, "error", err)
		return
	}
	c.config.Logger.Info("the Lease is released", "lease", c.status.Lease)
}

// Get implements resourcelock.Interface.
func (t *term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := t.LeaseLock.Get(ctx)
	t.note(ctx, err)
	if err == nil {
		t.candidate.follow(record.HolderIdentity)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (t *term) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, r, t.LeaseLock.Create)
}

// Update implements resourcelock.Interface.
func (t *term) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, r, t.LeaseLock.Update)
}

// write takes or renews the Lease. What counts is when the request was sent: the others count from when they see it,
// which is later.
func (t *term) write(
	ctx context.Context, r resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	c := t.candidate
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return context.Canceled // the candidate is closed
	}
	held := t.timer != nil
	t.mu.Unlock()
	if held && c.config.Stalled != nil {
		if parts := c.config.Stalled(); len(parts) > 0 {
			c.config.Logger.Error("giving leadership up: there is no progress", "stalled", parts, "lease", c.status.Lease)
			t.lose(ErrStalled)
			return ErrStalled
		}
	}
	sent := time.Now()
	err := send(ctx, r)
	t.note(ctx, err)
	until := sent.Add(c.config.RenewDeadline)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		t.torn = t.torn || !expected(err)
		return err
	case t.timer == nil:
		t.timer = time.AfterFunc(time.Until(until), func() { t.lose(ErrLost) })
		c.begin(sent, until)
	case t.timer.Stop(): // it has not been too late
		t.timer.Reset(time.Until(until))
		c.extend(until)
	}
	return nil
}

// begin notes that this process leads, until a time if it does not renew the Lease.
func (c *Candidate) begin(now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Leading, c.status.Holder, c.status.Since, c.until = true, c.config.Identity, now, until
	c.status.Terms++
}

func (c *Candidate) extend(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = until
}

// note remembers what came of a request, unless it was broken off or is part of how candidates meet.
func (t *term) note(ctx context.Context, err error) {
	if err != nil && (ctx.Err() != nil && t.contending.Err() != nil || expected(err)) {
		return
	}
	t.candidate.problem(err)
}

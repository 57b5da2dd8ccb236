// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/watch"
)

// candidacy is what all runtimes of a daemon contend with.
type candidacy struct {
	holder  *leader.Holder
	stalled func() []string
}

// candidacy names this process for the Lease, by a file of the folder for state or, without one, for sockets.
func (d *Daemon) candidacy() *candidacy {
	d.naming.Do(func() {
		folder, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
		if folder == "" {
			folder = RuntimeDir(d.configured().Values)
		}
		holder, err := leader.NewHolder(folder)
		if err != nil {
			d.log.Warn("this process has no name that stays", "error", err)
		}
		d.holder = holder
	})
	return &candidacy{holder: d.holder, stalled: d.progress.Stalled}
}

// nominate makes this runtime a candidate: nothing is changed in the cloud before it leads. as is nil for what changes
// nothing at all.
func (r *runtime) nominate(as *candidacy) error {
	if as == nil {
		return nil
	}
	c, err := leader.FromConfig(r.loaded.Values)
	if err != nil {
		return err
	}
	c.Identity, c.Stalled = as.holder.Name, as.stalled
	if c.REST, err = watch.RESTConfig(r.loaded.Values, r.loaded.loader.Version); err != nil {
		return err
	}
	c.Logger = r.log
	if r.candidate, err = leader.New(c); err != nil {
		return err
	}
	r.cloud.Fence()
	return nil
}

// contend stands by and leads in turn, until ctx ends. Each term has an engine of its own, which stands by first: what
// one knew that lost the Lease is out of date.
func (r *runtime) contend(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	t := r.beginTerm(ctx)
	r.candidate.Run(ctx, func(asked, lease context.Context) {
		failed = r.lead(asked, lease, t)
		if failed == nil && ctx.Err() == nil {
			if failed = r.renew(); failed == nil {
				t = r.beginTerm(ctx)
			}
		}
		if failed != nil {
			cancel()
		}
	})
	t.end()
	if failed == nil {
		failed = t.err
	}
	return failed
}

// renew makes a new engine, which stands by, of the same caches and drivers.
func (r *runtime) renew() error {
	if err := r.newEngine(); err != nil {
		return err
	}
	for w := range r.launched() {
		if err := w.Join(); err != nil {
			return err
		}
	}
	return nil
}

// engineTerm is one engine at work, from standing by to the end of its leadership.
type engineTerm struct {
	engine *reconcile.Engine
	cancel context.CancelFunc
	ended  chan struct{} // closed after err is set
	err    error
}

func (r *runtime) beginTerm(ctx context.Context) *engineTerm {
	t := &engineTerm{engine: r.engine(), ended: make(chan struct{})}
	ctx, t.cancel = context.WithCancel(ctx)
	go func() {
		defer close(t.ended)
		t.err = service.Guard(func() error { return t.engine.Run(ctx) })
	}()
	return t
}

func (t *engineTerm) end() {
	t.cancel()
	<-t.ended
}

// lead works until it is asked to end or the Lease is lost. Changes that are under way end with the Lease at the
// latest.
func (r *runtime) lead(ctx, lease context.Context, t *engineTerm) error {
	r.cloud.Admit(lease, r.candidate.Valid)
	defer r.cloud.Fence()
	defer context.AfterFunc(lease, t.engine.Abort)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		r.takeOver(ctx, t.engine)
	}()
	select {
	case <-ctx.Done():
	case <-t.ended: // a fault
	}
	cancel()
	<-taken
	t.end()
	return t.err
}

// takeOver lists the cloud, as often as it takes, and lets the engine work.
func (r *runtime) takeOver(ctx context.Context, engine *reconcile.Engine) {
	began := time.Now()
	retry := service.BackOff{Clock: clock.RealClock{}, Initial: time.Second, Max: 30 * time.Second}
	err := retry.Run(ctx, func(ctx context.Context) error {
		if err := engine.Lead(ctx); err != nil {
			if ctx.Err() == nil {
				r.log.Error("listing the cloud, which leading waits for", "error", err)
			}
			return err
		}
		return service.ErrDone
	})
	if err == nil {
		r.log.Info("taken over", "seconds", time.Since(began).Seconds())
	}
}

const leaderComponent = "leader"

// leadership reports who leads.
func (r *runtime) leadership(c *health.Component) {
	s := r.leaderReport()
	switch {
	case s.Refused && !s.Leading:
		c.NotReady(s.String())
	case s.Problem != "":
		c.Degraded(s.String())
	case s.Leading && r.engine().StandingBy():
		c.NotReady("taking over: the cloud is not listed yet")
	default:
		c.ReadyAs(s.String())
	}
}

// LeaderReport is how leadership stands; nil where none is contended for.
type LeaderReport struct{ leader.Status }

func (r *runtime) leaderReport() *LeaderReport {
	if r.candidate == nil {
		return nil
	}
	return &LeaderReport{r.candidate.Status()}
}

// String says in one sentence who leads.
func (l *LeaderReport) String() string {
	text := ""
	switch {
	case l.Leading:
		text = fmt.Sprintf("this daemon leads as %s for %s, by Lease %s", l.Identity, since(l.Since), l.Lease)
	case l.Holder == "":
		text = fmt.Sprintf("standing by as %s: Lease %s has no holder", l.Identity, l.Lease)
	default:
		text = fmt.Sprintf("standing by as %s: %s leads since %s or longer; ask it what became of each object", l.Identity,
			l.Holder, since(l.Since))
	}
	if l.Problem != "" {
		text += "; the Lease cannot be reached: " + l.Problem
	}
	return text
}

// since is for how long something has been so, for people.
func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Truncate(time.Second).String()
}

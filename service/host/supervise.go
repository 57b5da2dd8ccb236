// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// activate makes an instance the current one, configured with the newest values.
func (p *Plugin) activate(ctx context.Context, next *instance) error {
	info := next.client.Info()
	if p.config.Name != "" && info.Name != p.config.Name {
		return fmt.Errorf("%s calls itself driver %q", p.config.Path, info.Name)
	}
	if err := checkTexts(info); err != nil {
		return notStarted{fmt.Errorf("%s: %w", p.config.Path, err)}
	}
	if err := p.accept(info); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		values, generation := p.values, p.generation
		p.mu.Unlock()
		if values != nil {
			if err := p.configure(ctx, next); err != nil {
				return err
			}
			if err := checkWatchTexts(next.client.Watches()); err != nil {
				return notStarted{fmt.Errorf("%s: %w", p.config.Path, err)}
			}
		}
		p.mu.Lock()
		if generation == p.generation {
			p.current, p.info, p.watches = next, info, next.client.Watches()
			if p.accepted == nil {
				p.accepted = &info
			}
			p.status.State, p.status.PID, p.status.Since = Ready, next.process.pid(), p.config.Clock.Now()
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
	}
}

func (p *Plugin) configure(ctx context.Context, next *instance) error {
	p.mu.Lock()
	values := p.values
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeouts.Configure)
	defer cancel()
	err := next.client.Configure(ctx, values)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded): // it has no opinion about the values
		return notStarted{refusal{err}}
	default:
		return refusal{err}
	}
}

// request asks the supervisor for another life; it answers once.
type request struct{ answer chan error }

// Restart starts the driver anew from what stands under its path now, and replaces the process at hand when the new
// one is configured: no call is without a driver meanwhile. When it cannot be started the old one stays, if there is
// one. What was isolated is shown to it again, and a quarantine ends. OnReady is called before Restart returns.
func (p *Plugin) Restart(ctx context.Context) error {
	r := request{make(chan error, 1)}
	select {
	case p.requests <- r:
	case <-p.done:
		return p.wrap(ErrUnavailable)
	case <-ctx.Done():
		return p.wrap(ctx.Err())
	}
	select {
	case err := <-r.answer:
		return p.wrap(err)
	case <-p.done:
		return p.wrap(ErrUnavailable)
	case <-ctx.Done():
		return p.wrap(ctx.Err())
	}
}

// supervise watches one instance after another until ctx ends. The last one stays the current one, for Stop.
func (p *Plugin) supervise(ctx context.Context, current *instance) {
	patience := newPatience(p.config)
	for {
		began := p.config.Clock.Now()
		asked, reason := p.watch(ctx, current)
		if ctx.Err() != nil {
			return
		}
		if asked != nil {
			current = p.replace(ctx, current, *asked)
			continue
		}
		patience.lived(p.config.Clock.Since(began))
		p.lost(reason)
		_ = current.stop(ctx, p.config.Timeouts, false)
		if current = p.revive(ctx, patience, reason); current == nil {
			return
		}
		p.config.Logger.Info("driver is back", "pid", current.process.pid())
		p.config.OnReady()
	}
}

// revive starts a lost driver until it runs, ever later, and after too many losses much later. It returns nil when
// ctx ended.
func (p *Plugin) revive(ctx context.Context, patience *patience, reason error) *instance {
	for {
		_, isolated := p.suspects.counts()
		delay, quarantined := patience.next(isolated)
		if quarantined {
			p.quarantine(reason, delay)
		} else {
			p.config.Logger.Error("driver lost, restarting it", "reason", reason, "in", delay)
		}
		asked, ok := p.pause(ctx, delay)
		if !ok {
			return nil
		}
		if asked != nil {
			p.suspects.forgive()
			patience.reset()
		}
		var next *instance
		if next, reason = p.restart(ctx); reason != nil {
			p.mu.Lock()
			p.status.LastExit = reason.Error()
			p.mu.Unlock()
		}
		if asked != nil {
			asked.answer <- reason
		}
		if ctx.Err() != nil || next != nil {
			return next
		}
	}
}

// replace answers a request for another life while there is one.
func (p *Plugin) replace(ctx context.Context, current *instance, asked request) *instance {
	next, err := p.restart(ctx)
	if err != nil {
		asked.answer <- err
		return current
	}
	_ = current.stop(ctx, p.config.Timeouts, true)
	p.suspects.forgive()
	p.config.Logger.Info("driver was restarted", "pid", next.process.pid())
	p.config.OnReady()
	asked.answer <- nil
	return next
}

func (p *Plugin) quarantine(reason error, delay time.Duration) {
	p.mu.Lock()
	p.status.State, p.status.LastExit = Quarantined, reason.Error()
	p.mu.Unlock()
	p.config.Logger.Error("driver is lost again and again: it is left alone; `raven driver restart` ends that", "reason",
		reason,
		"losses", p.config.MaxLosses, "for", delay)
	p.config.OnQuarantine(p.wrap(reason))
}

// patience says how long to wait before another try. Only a stable life restores it.
type patience struct {
	config   Config
	backoff  time.Duration
	losses   int // in a row
	isolated int // at the last check
}

func newPatience(c Config) *patience {
	p := &patience{config: c}
	p.reset()
	return p
}

func (p *patience) reset() { p.backoff, p.losses = p.config.Timeouts.BackoffMin, 0 }

// lived learns from a life that is over.
func (p *patience) lived(long time.Duration) {
	if long >= p.config.Timeouts.Stable {
		p.reset()
	}
}

// next returns the time until the next try, and whether the driver is given up for that long. Where an object was
// isolated since, there is hope that it was to blame.
func (p *patience) next(isolated int) (delay time.Duration, quarantined bool) {
	p.losses++
	if isolated != p.isolated {
		p.isolated, p.losses = isolated, 1
	}
	if p.losses >= p.config.MaxLosses {
		return p.config.Timeouts.Quarantine, true
	}
	delay = p.backoff
	p.backoff = min(2*p.backoff, p.config.Timeouts.BackoffMax)
	return delay, false
}

func (p *Plugin) lost(reason error) {
	p.mu.Lock()
	p.current = nil
	p.status.State, p.status.PID, p.status.Since = Restarting, 0, p.config.Clock.Now()
	p.status.LastExit = reason.Error()
	p.status.Restarts++
	p.mu.Unlock()
	p.config.OnExit(p.wrap(reason))
}

func (p *Plugin) restart(ctx context.Context) (*instance, error) {
	next, err := start(ctx, p.config, p.folder.path)
	if err != nil {
		return nil, err
	}
	if err := p.activate(ctx, next); err != nil {
		_ = next.stop(ctx, p.config.Timeouts, false)
		return nil, err
	}
	return next, nil
}

// pause waits, at most until a restart is asked for; it says no when ctx ended first.
func (p *Plugin) pause(ctx context.Context, delay time.Duration) (*request, bool) {
	timer := p.config.Clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil, true
	case r := <-p.requests:
		return &r, true
	case <-ctx.Done():
		return nil, false
	}
}

// watch returns why an instance is lost, the request for another one, or when ctx ends.
func (p *Plugin) watch(ctx context.Context, current *instance) (*request, error) {
	ticker := p.config.Clock.NewTicker(p.config.Timeouts.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-p.requests:
			return &r, nil
		case <-current.process.exited:
			return nil, errors.New(current.process.exitText())
		case <-current.client.Done():
			return nil, p.whyEnded(ctx, current)
		case <-ticker.C():
		}
		if current.attached {
			continue // it may stand at a breakpoint
		}
		if overdue := current.client.Overdue(); overdue > p.config.Timeouts.Overdue {
			return nil, fmt.Errorf("is stuck: a call is %s over its deadline", overdue.Round(time.Millisecond))
		}
		if current.process.litters() {
			return nil, fmt.Errorf("fills its folder: it needs one socket there, and has more than %d files", maxOwnFiles)
		}
		if err := current.ping(ctx, p.config.Timeouts.Ping); err != nil {
			select {
			case <-current.process.exited:
				return nil, errors.New(current.process.exitText())
			default:
				return nil, fmt.Errorf("does not answer a health check: %w", err)
			}
		}
	}
}

// whyEnded tells a process that died, which ends its stream a moment before it can be waited for, from one that ended
// the stream.
func (p *Plugin) whyEnded(ctx context.Context, current *instance) error {
	timer := p.config.Clock.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-current.process.exited:
		return errors.New(current.process.exitText())
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return current.client.Err()
	}
}

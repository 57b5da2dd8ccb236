package host

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// adopt makes an instance the current one, configured with the newest values.
func (p *Plugin) adopt(ctx context.Context, next *instance) error {
	info := next.client.Info()
	if p.config.Name != "" && info.Name != p.config.Name {
		return fmt.Errorf("%s calls itself driver %q", p.config.Path, info.Name)
	}
	for {
		p.mu.Lock()
		values, generation := p.values, p.generation
		p.mu.Unlock()
		if values != nil {
			if err := p.configure(ctx, next); err != nil {
				return err
			}
		}
		p.mu.Lock()
		if generation == p.generation {
			p.current, p.info, p.watches = next, info, next.client.Watches()
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
	if err := next.client.Configure(ctx, values); err != nil {
		return refusal{err}
	}
	return nil
}

// supervise watches one instance after another until ctx ends. The last one stays the current one, for Stop.
func (p *Plugin) supervise(ctx context.Context, current *instance) {
	backoff := p.config.Timeouts.BackoffMin
	for {
		began := p.config.Clock.Now()
		reason := p.watch(ctx, current)
		if ctx.Err() != nil {
			return
		}
		if p.config.Clock.Since(began) >= p.config.Timeouts.Stable {
			backoff = p.config.Timeouts.BackoffMin
		}
		p.lost(reason)
		_ = current.stop(ctx, p.config.Timeouts, false)
		for current = nil; current == nil; {
			p.config.Logger.Error("driver lost, restarting it", "reason", reason, "in", backoff)
			if !p.pause(ctx, backoff) {
				return
			}
			backoff = min(2*backoff, p.config.Timeouts.BackoffMax)
			current, reason = p.restart(ctx)
			if ctx.Err() != nil {
				return
			}
		}
		p.config.Logger.Info("driver is back", "pid", current.process.pid())
		p.config.OnReady()
	}
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
	if err := p.adopt(ctx, next); err != nil {
		_ = next.stop(ctx, p.config.Timeouts, false)
		return nil, err
	}
	return next, nil
}

// pause waits; it says no when ctx ended first.
func (p *Plugin) pause(ctx context.Context, delay time.Duration) bool {
	timer := p.config.Clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// watch returns why an instance is lost, or when ctx ends.
func (p *Plugin) watch(ctx context.Context, current *instance) error {
	ticker := p.config.Clock.NewTicker(p.config.Timeouts.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-current.process.exited:
			return errors.New(current.process.exitText())
		case <-current.client.Done():
			return p.whyEnded(ctx, current)
		case <-ticker.C():
		}
		if overdue := current.client.Overdue(); overdue > p.config.Timeouts.Overdue {
			return fmt.Errorf("is stuck: a call is %s over its deadline", overdue.Round(time.Millisecond))
		}
		if err := current.ping(ctx, p.config.Timeouts.Ping); err != nil {
			select {
			case <-current.process.exited:
				return errors.New(current.process.exitText())
			default:
				return fmt.Errorf("does not answer a health check: %w", err)
			}
		}
	}
}

// whyEnded tells a process that died, which ends its stream a moment before it can be waited for, from one that ended the stream.
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

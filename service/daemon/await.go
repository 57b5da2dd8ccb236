// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/watch"
)

// What a start waits for, and what /readyz has a line for.
const (
	linkKubernetes = "kubernetes"
	linkKeystone   = "keystone"
	linkNeutron    = "neutron"
	linkOctavia    = "octavia"
)

// unreachedError is why a start could not go on now although the configuration is valid: it is tried again.
type unreachedError struct {
	link string
	err  error
}

func (u *unreachedError) Error() string { return u.err.Error() }
func (u *unreachedError) Unwrap() error { return u.err }

// unreached marks an error that may pass by itself. Refused credentials, missing permissions and what is wrong with the
// configuration do not.
func unreached(link string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || refused(err) {
		return err
	}
	return &unreachedError{link, err}
}

// refused says that an answer came, or a server was met, that waiting does not change.
func refused(err error) bool {
	var certificate *tls.CertificateVerificationError
	var sync *watch.SyncError
	var cloud *openstack.Error
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &certificate), errors.Is(err, http.ErrSchemeMismatch):
		return true
	case errors.As(err, &sync):
		for _, failure := range sync.Failures {
			if failure.Cause != watch.Unreachable {
				return true
			}
		}
		return false
	case errors.As(err, &cloud):
		switch cloud.Class {
		case openstack.ClassRetry, openstack.ClassThrottled, openstack.ClassAmbiguous:
			return false
		default:
			return true
		}
	case errors.As(err, &status):
		code := status.Status().Code
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
			code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
	}
	return false
}

// waiting is a start that is tried again and again.
type waiting struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// wait tries to begin until that succeeds, in a goroutine. first is why the last attempt did not, nil: it is not known.
// An error that does not pass ends the daemon.
func (d *Daemon) wait(ctx context.Context, first error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &waiting{cancel: cancel, ended: make(chan struct{})}
	d.mu.Lock()
	d.waiting = w
	d.mu.Unlock()
	d.awaits(first)
	go func() {
		defer close(w.ended)
		retry := service.BackOff{
			Clock: clock.RealClock{}, Delay: time.Second, Initial: time.Second, Max: 30 * time.Second, Jitter: 0.75,
		}
		err := retry.Run(ctx, func(ctx context.Context) error {
			err := service.Guard(func() error { return d.begin(ctx, d.configured()) })
			if _, again := errors.AsType[*unreachedError](err); again {
				d.awaits(err)
				return err
			}
			if err != nil && ctx.Err() == nil {
				d.fail(err)
			}
			return service.ErrDone
		})
		if err != nil && ctx.Err() == nil {
			d.fail(err)
		}
	}()
}

// stopWaiting ends the attempts to begin, and says whether there were some and none has succeeded.
func (d *Daemon) stopWaiting() bool {
	d.mu.Lock()
	w := d.waiting
	d.waiting = nil
	d.mu.Unlock()
	if w == nil {
		return false
	}
	w.cancel()
	<-w.ended
	return d.current() == nil
}

func (d *Daemon) configured() *Settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded
}

// awaits says in the log, to systemd, at /readyz and in the status what the start waits for.
func (d *Daemon) awaits(err error) {
	what, ok := errors.AsType[*unreachedError](err)
	if !ok {
		return
	}
	text := d.logs.Redactor().Text(err.Error())
	d.log.Warn("the start waits for a service that cannot be reached; trying again", "service", what.link, "error", text)
	d.config.Notify.Status("waiting for %s: %s", what.link, text)
	d.state.NotReady(fmt.Sprintf("the start waits for %s", what.link))
	asked := true
	for _, link := range d.links() {
		c := d.registry.Component(link)
		switch {
		case link == what.link:
			c.NotReady(text)
			asked = false
		case asked:
			c.Ready()
		default:
			c.NotReady("not asked yet")
		}
	}
	d.mu.Lock()
	d.awaited = what.link + ": " + text
	d.mu.Unlock()
}

// links are the services that a start asks, in this order.
func (d *Daemon) links() []string {
	links := []string{linkKubernetes, linkKeystone, linkNeutron}
	for _, p := range d.configured().Programs {
		if slices.Contains(p.Info.Kinds, drivers.KindLoadBalancer) {
			return append(links, linkOctavia)
		}
	}
	return links
}

// reconfigure takes over a configuration while the start waits, and goes on waiting: with the new one if it is valid.
func (d *Daemon) reconfigure(ctx context.Context) error {
	l, err := d.config.Loader.loadDespite(ctx, d.without)
	if err == nil {
		d.logs.Redactor().Add(l.secrets()...)
		err = l.checkDrivers(ctx)
	}
	if err == nil {
		err = d.logs.Reset(ctx)
	}
	if err != nil {
		d.wait(ctx, nil)
		return fmt.Errorf("the new configuration is not taken over: %w", err)
	}
	l.logWarnings(d.log)
	var taken, kept []config.Change
	l.Values, taken, kept = config.Reload(d.values(), l.Values)
	d.mu.Lock()
	d.loaded = l
	d.mu.Unlock()
	d.logChanges(taken, kept)
	d.logs.SetLevel(log.FromConfig(l.Values, "raven").Level)
	d.wait(ctx, nil)
	return nil
}

// checkDrivers checks what a start that waits would hear late: whether the options suffice for a cloud, and the
// drivers' opinion of theirs.
func (l *Settings) checkDrivers(ctx context.Context) error {
	cloud, err := openstack.FromConfig(l.Values)
	if err == nil {
		err = cloud.Check()
	}
	if err != nil {
		return err
	}
	for _, p := range l.Programs {
		if p.isDown() {
			continue
		}
		if _, err := l.Watches(ctx, p); err != nil && !isNotStarted(err) {
			return err
		}
	}
	return nil
}

// reportLinks says how Kubernetes and the services of the cloud can be reached.
func (r *runtime) reportLinks(registry *health.Registry) {
	tell := func(link, problem string) {
		if problem == "" {
			registry.Component(link).Ready()
			return
		}
		registry.Component(link).Degraded(problem)
	}
	unreachable := ""
	for w := range r.launched() {
		if problem := w.unreachable(); problem != "" {
			unreachable = problem
			break
		}
	}
	tell(linkKubernetes, unreachable)
	tell(linkKeystone, reachText(r.cloud.Identity()))
	tell(linkNeutron, reachText(r.cloud.Networking().Reach()))
	if r.cloud.Balancing().Available() {
		tell(linkOctavia, reachText(r.cloud.Balancing().Reach()))
	} else {
		registry.Component(linkOctavia).Remove()
	}
}

func reachText(reach openstack.Reach) string {
	if reach.Problem == "" {
		return ""
	}
	return fmt.Sprintf("it cannot be used since %s: %s", reach.Since.UTC().Format(time.RFC3339), reach.Problem)
}

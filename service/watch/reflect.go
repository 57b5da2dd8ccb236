// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// keepRunning lists and watches until the context ends. While the resource is not served it only asks now and then
// whether it is.
func (i *informer) keepRunning(ctx context.Context, r *run) {
	for ctx.Err() == nil {
		i.reflect(ctx, r)
		for ctx.Err() == nil && !i.servedAgain(ctx) {
			continue
		}
	}
}

// reflect lists and watches until the context ends or the resource turns out not to be served.
func (i *informer) reflect(ctx context.Context, r *run) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The reflector's own log repeats every attempt; what happens is logged here, once.
	ctx = klog.NewContext(ctx, klog.Logger{})
	source := &source{informer: i, run: r, absent: cancel}
	var example runtime.Object = &unstructured.Unstructured{}
	if source.metadataOnly() {
		example = &metav1.PartialObjectMetadata{}
	}
	logger := klog.Logger{}
	cache.NewReflectorWithOptions(source.listerWatcher(), example, store{i, r}, cache.ReflectorOptions{
		Name: resourceText(i.key.gvr), TypeDescription: resourceText(i.key.gvr), Logger: &logger,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Cap: 30 * time.Second, Steps: 9, Factor: 2, Jitter: 1},
		Clock:   endingClock{clock.RealClock{}, func(f func()) func() bool { return context.AfterFunc(ctx, f) }},
	}).RunWithContext(ctx)
}

// servedAgain waits for a while and says whether listing is worth a try.
func (i *informer) servedAgain(ctx context.Context) bool {
	i.mu.RLock()
	absent := i.absent
	i.mu.RUnlock()
	if !absent {
		return true
	}
	select {
	case <-i.config.Clock.After(i.config.RecheckPeriod):
	case <-ctx.Done():
		return false
	}
	if i.config.Discovery == nil {
		return true
	}
	served, err := i.config.Discovery.Served(ctx, i.key.gvr)
	return err == nil && served
}

// source is the API server as one run's reflector sees it.
type source struct {
	informer *informer
	run      *run
	absent   context.CancelFunc
}

func (s *source) metadataOnly() bool {
	return s.informer.config.Metadata != nil && s.run.spec.metadataOnly()
}

func (s *source) listerWatcher() cache.ListerWatcher {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := s.list(ctx, s.options(options))
			s.informer.listed(ctx, s, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			w, err := s.watch(ctx, s.options(options))
			s.informer.watched(ctx, s, options, err)
			return w, err
		},
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, listSemantics{s.informer.config.ListOnly})
}

// listSemantics tells the reflector whether to stream lists.
type listSemantics struct{ listOnly bool }

// IsWatchListSemanticsUnSupported is asked by client-go.
func (l listSemantics) IsWatchListSemanticsUnSupported() bool { return l.listOnly }

func (s *source) options(options metav1.ListOptions) metav1.ListOptions {
	options.LabelSelector = s.informer.key.labelSelector
	options.FieldSelector = s.informer.key.fieldSelector
	// A run that takes another's place must not show an older state than the one it replaces.
	if s.run.number > 0 && options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	return options
}

func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	key, clients := s.informer.key, s.informer.config.Clients
	if s.metadataOnly() {
		return clients.Metadata.Resource(key.gvr).Namespace(key.namespace).List(ctx, options)
	}
	return clients.Dynamic.Resource(key.gvr).Namespace(key.namespace).List(ctx, options)
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
	key, clients := s.informer.key, s.informer.config.Clients
	if s.metadataOnly() {
		return clients.Metadata.Resource(key.gvr).Namespace(key.namespace).Watch(ctx, options)
	}
	return clients.Dynamic.Resource(key.gvr).Namespace(key.namespace).Watch(ctx, options)
}

// listed notes how a list went.
func (i *informer) listed(ctx context.Context, s *source, err error) {
	if ctx.Err() != nil {
		return
	}
	if failed := i.explain(ctx, s, "list", err); failed != nil {
		i.note(&i.listing, failed)
	}
	// Success is noted when the list was taken in.
}

// watched notes how the start of a watch went. A streaming list that the server does not understand is no failure: the
// reflector lists instead.
func (i *informer) watched(ctx context.Context, s *source, options metav1.ListOptions, err error) {
	if ctx.Err() != nil {
		return
	}
	failed := i.explain(ctx, s, "watch", err)
	streaming := options.SendInitialEvents != nil && *options.SendInitialEvents
	switch {
	case err == nil:
		i.note(&i.watches, nil)
	case failed == nil || (streaming && failed.cause == Unreachable && isAnswer(err)):
	default:
		i.note(&i.watches, failed)
	}
}

// explain classifies an error, and asks the API server about a 403 and a 404.
func (i *informer) explain(ctx context.Context, s *source, verb string, err error) *failure {
	failed := classify(verb, err)
	if failed == nil {
		return nil
	}
	switch failed.cause {
	case Forbidden:
		i.explainForbidden(ctx, failed)
	case NotServed:
		i.explainNotServed(ctx, s, failed)
	case Unreachable:
		if i.key.fieldSelector != "" && apierrors.IsBadRequest(err) {
			failed.cause = BadSelector
		}
	case Unauthorized, BadSelector:
	}
	return failed
}

// explainForbidden names all missing verbs. Where the review says that nothing is missing, roles have just changed,
// and the next attempt will do.
func (i *informer) explainForbidden(ctx context.Context, failed *failure) {
	if i.config.Access == nil {
		return
	}
	missing, err := i.config.Access.Missing(ctx, i.key.gvr, i.key.namespace, "list", "watch")
	switch {
	case err != nil: // the API server's own refusal stands
	case len(missing) == 0:
		failed.cause = Unreachable
	default:
		failed.verbs = missing
	}
}

// explainNotServed believes a 404 only if discovery confirms it.
func (i *informer) explainNotServed(ctx context.Context, s *source, failed *failure) {
	if i.config.Discovery != nil {
		served, err := i.config.Discovery.Served(ctx, i.key.gvr)
		if err != nil || served {
			failed.cause = Unreachable
			return
		}
	}
	i.vanish()
	s.absent()
}

// note keeps what is known of listing or of watching, logs it when it is news, and wakes those whose needs can be
// answered again.
func (i *informer) note(of **failure, failed *failure) {
	i.mu.Lock()
	was := *of
	before := i.usableViews()
	*of = failed
	wakeups := i.nowUsable(before, nil)
	i.tell()
	i.mu.Unlock()
	switch {
	case failed != nil && (was == nil || was.cause != failed.cause):
		i.log.Warn("a watch does not work", "cause", failed.cause, "error", failed.err)
	case failed == nil && was != nil:
		i.log.Info("a watch works again")
	}
	deliver(wakeups)
}

// endingClock is a clock whose After fires when the context ends, too, so that a reflector that backs off does not
// hold up the end.
type endingClock struct {
	clock.Clock
	onEnd func(func()) (stop func() bool)
}

// After implements clock.Clock.
func (c endingClock) After(d time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	fire := func() {
		select {
		case fired <- c.Now():
		default:
		}
	}
	stop := c.onEnd(fire)
	time.AfterFunc(d, func() { stop(); fire() })
	return fired
}

// isAnswer says whether an error is an API server's answer, rather than the lack of one.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

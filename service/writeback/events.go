// SPDX-License-Identifier: Apache-2.0

package writeback

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
)

// Events says how Events are recorded.
type Events struct {
	// Disabled records none at all.
	Disabled bool
	// Component and Host name the reporter; Component is "raven" by default.
	Component, Host string
	Logger          *slog.Logger
	Clock           clock.Clock
	// Queue is how many Events may wait; 0 is 1000.
	Queue int
	// Timeout bounds one request; 0 is ten seconds.
	Timeout time.Duration
}

func (e Events) withDefaults() Events {
	if e.Component == "" {
		e.Component = "raven"
	}
	if e.Logger == nil {
		e.Logger = slog.New(slog.DiscardHandler)
	}
	if e.Clock == nil {
		e.Clock = clock.RealClock{}
	}
	if e.Queue == 0 {
		e.Queue = 1000
	}
	if e.Timeout == 0 {
		e.Timeout = 10 * time.Second
	}
	return e
}

// maxMessage is the API server's bound on an Event's message, in bytes.
const maxMessage = 1024

// recorder writes Events one after the other. Alike ones become one with a count, and an object that has many gets no
// more than one in five minutes after a burst of 25: that is the correlator's doing.
type recorder struct {
	config     Events
	dynamic    dynamic.Interface
	correlator *record.EventCorrelator
	dropped    atomic.Int64
	failing    bool // used by the writing goroutine only

	mu     sync.RWMutex // held for reading while the queue is written to
	queue  chan *corev1.Event
	closed bool
	abort  context.CancelFunc
	ended  chan struct{}
}

func newRecorder(client dynamic.Interface, config Events) *recorder {
	config = config.withDefaults()
	r := &recorder{
		config: config, dynamic: client, ended: make(chan struct{}),
		correlator: record.NewEventCorrelator(config.Clock), queue: make(chan *corev1.Event, config.Queue),
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.abort = cancel
	go r.write(ctx)
	return r
}

func (r *recorder) record(target Target, severity drivers.Severity, reason, message string) {
	if r.config.Disabled {
		return
	}
	event := r.event(target, severity, reason, message)
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return
	}
	if event.Type == corev1.EventTypeNormal && len(r.queue) > cap(r.queue)/2 {
		r.dropped.Add(1) // in a burst there is room for what went wrong
		return
	}
	select {
	case r.queue <- event:
	default:
		r.dropped.Add(1)
	}
}

func (r *recorder) event(target Target, severity drivers.Severity, reason, message string) *corev1.Event {
	now := metav1.NewTime(r.config.Clock.Now())
	namespace := target.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	kind := corev1.EventTypeNormal
	if severity == drivers.Warning || severity == drivers.Error {
		kind = corev1.EventTypeWarning
	}
	return &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", target.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: target.GVR.GroupVersion().String(), Kind: target.Kind,
			Namespace: target.Namespace, Name: target.Name, UID: types.UID(target.UID),
		},
		Reason: reason, Message: cut(message, maxMessage), Type: kind,
		Source:         corev1.EventSource{Component: r.config.Component, Host: r.config.Host},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: r.config.Component, ReportingInstance: r.config.Host,
	}
}

// cut shortens a text to at most so many bytes, between two characters.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	text = text[:size]
	for !utf8.ValidString(text) && len(text) > size-utf8.UTFMax {
		text = text[:len(text)-1]
	}
	return strings.ToValidUTF8(text, "")
}

// write is the writing goroutine. It ends when the queue is closed and empty.
func (r *recorder) write(ctx context.Context) {
	defer close(r.ended)
	for event := range r.queue {
		if ctx.Err() == nil {
			r.send(ctx, event)
		}
	}
}

func (r *recorder) send(ctx context.Context, event *corev1.Event) {
	result, err := r.correlator.EventCorrelate(event)
	if err != nil || result.Skip {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	written, err := r.put(ctx, result)
	if err != nil {
		// An Event is worth one try: what it tells stands in the status, too.
		if !r.failing && ctx.Err() == nil {
			r.config.Logger.Warn("cannot write Events", "error", err)
		}
		r.failing = true
		return
	}
	r.failing = false
	r.correlator.UpdateState(written)
}

// put patches the Event that is counted up, or creates one.
func (r *recorder) put(ctx context.Context, result *record.EventCorrelateResult) (*corev1.Event, error) {
	event := result.Event
	events := r.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace(event.Namespace)
	if event.Count > 1 && len(result.Patch) > 0 {
		_, err := events.Patch(ctx, event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
		if err == nil {
			return event, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("counting up event %q: %w", event.Name, err)
		}
	}
	event.ResourceVersion = ""
	event.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return nil, fmt.Errorf("encoding event %q: %w", event.Name, err)
	}
	_, err = events.Create(ctx, &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating event %q: %w", event.Name, err)
	}
	return event, nil
}

func (r *recorder) close(ctx context.Context) {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	r.mu.Unlock()
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
	r.abort()
	<-r.ended
}

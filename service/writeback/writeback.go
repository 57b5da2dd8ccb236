// SPDX-License-Identifier: Apache-2.0

// Package writeback writes what became of an object on the object itself: annotations, labels and Events. It must never
// create an object, nor write on another object than the one that was meant.
package writeback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
)

// The classes of errors of Apply. Any other error may pass: try again.
var (
	// ErrGone says that the object does not exist any more, or that another one took its name. Nothing was written.
	ErrGone = errors.New("the object is gone")
	// ErrForbidden says that the API server does not allow the write: a role lacks it, or the server has not read the
	// roles yet.
	ErrForbidden = errors.New("forbidden")
	// ErrChanged says that the API server refuses what is written as invalid, and that the object has changed since it was
	// read: what is right for it now is worked out from what it is now.
	ErrChanged = errors.New("the object has changed")
)

// Target is one object. UID is what tells it from a successor of the same name; it must be set.
type Target struct {
	GVR       schema.GroupVersionResource
	Kind      string
	Namespace string
	Name      string
	UID       string
	// Version is the object's resourceVersion when it was read; empty: not known.
	Version string
}

// String returns the target in a form that people can read, for example `Pod "default/web-0"`.
func (t Target) String() string {
	if t.Namespace == "" {
		return fmt.Sprintf("%s %q", t.Kind, t.Name)
	}
	return fmt.Sprintf("%s %q", t.Kind, t.Namespace+"/"+t.Name)
}

// Manager returns the field manager of a driver: that of its role if it has one, so that a driver that takes
// another's place takes over what it wrote.
func Manager(info drivers.Info) string {
	if info.Role != "" {
		return watch.ManagerPrefix + info.Role
	}
	return watch.ManagerPrefix + info.Name
}

// requestTimeout bounds one write: a server that accepts and never answers must not hold its key for ever.
const requestTimeout = 30 * time.Second

// Writer writes on objects. Its methods may be called by any number of goroutines; Apply is called by as many as the
// caller wants requests at once.
type Writer struct {
	dynamic dynamic.Interface
	events  *recorder
}

// New returns a Writer. Close ends it.
func New(client dynamic.Interface, events Events) *Writer {
	return &Writer{dynamic: client, events: newRecorder(client, events)}
}

// Differs says whether Apply would change anything: a wanted key is missing or has another value, or the manager owns
// a key that is not wanted any more. meta must keep every key that the manager may write.
func Differs(meta watch.Meta, manager string, annotations, labels map[string]string) bool {
	for key, value := range annotations {
		if have, ok := meta.Annotations[key]; !ok || have != value {
			return true
		}
	}
	for key, value := range labels {
		if have, ok := meta.Labels[key]; !ok || have != value {
			return true
		}
	}
	owned := meta.Owned[manager]
	for _, key := range owned.Annotations {
		if _, wanted := annotations[key]; !wanted {
			return true
		}
	}
	for _, key := range owned.Labels {
		if _, wanted := labels[key]; !wanted {
			return true
		}
	}
	return false
}

// Apply makes the annotations and labels that the manager owns on the object exactly these: what it wrote before and
// is not among them is removed, what others wrote under other keys stays. It is one server-side apply and is not
// retried. The error is ErrGone, ErrForbidden, or one that may pass.
func (w *Writer) Apply(
	ctx context.Context, target Target, manager string, annotations, labels map[string]string,
) error {
	if target.UID == "" || target.Name == "" {
		return fmt.Errorf("writing on %s: its UID is not known", target)
	}
	metadata := map[string]any{"name": target.Name, "uid": target.UID}
	if target.Namespace != "" {
		metadata["namespace"] = target.Namespace
	}
	if len(annotations) > 0 {
		metadata["annotations"] = untyped(annotations)
	}
	if len(labels) > 0 {
		metadata["labels"] = untyped(labels)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": target.GVR.GroupVersion().String(), "kind": target.Kind, "metadata": metadata,
	}}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	applied, err := w.resource(target).Apply(ctx, target.Name, object,
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("writing on %s: %w", target, w.explain(ctx, target, err, ""))
	}
	if uid := string(applied.GetUID()); uid != target.UID {
		return fmt.Errorf("writing on %s: %w: the object written has the UID %s", target, ErrGone, uid)
	}
	return nil
}

// IngressDiffers says whether ApplyIngress would change anything. meta must keep watch.KeepIngress.
func IngressDiffers(meta watch.Meta, manager string, addresses []string) bool {
	owned := slices.Contains(meta.Owned[manager].Status, drivers.StatusLoadBalancer)
	if len(addresses) == 0 {
		return owned && meta.Annotations[watch.KeepIngress] != ""
	}
	return !owned || meta.Annotations[watch.KeepIngress] != strings.Join(addresses, " ")
}

// ApplyIngress makes these addresses the object's status.loadBalancer.ingress, in this order; none removes those
// that the manager wrote before. It is one server-side apply to the status and is not retried. The errors are those
// of Apply.
func (w *Writer) ApplyIngress(ctx context.Context, target Target, manager string, addresses []string) error {
	if target.UID == "" || target.Name == "" {
		return fmt.Errorf("writing on %s: its UID is not known", target)
	}
	metadata := map[string]any{"name": target.Name, "uid": target.UID}
	if target.Namespace != "" {
		metadata["namespace"] = target.Namespace
	}
	balancer := map[string]any{}
	if len(addresses) > 0 {
		ingress := make([]any, 0, len(addresses))
		for _, address := range addresses {
			ingress = append(ingress, map[string]any{"ip": address})
		}
		balancer["ingress"] = ingress
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": target.GVR.GroupVersion().String(), "kind": target.Kind, "metadata": metadata,
		"status": map[string]any{"loadBalancer": balancer},
	}}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	applied, err := w.resource(target).ApplyStatus(ctx, target.Name, object,
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("writing the status of %s: %w", target, w.explain(ctx, target, err, "/status"))
	}
	if uid := string(applied.GetUID()); uid != target.UID {
		return fmt.Errorf("writing the status of %s: %w: the object written has the UID %s", target, ErrGone, uid)
	}
	return nil
}

// explain tells a refused write to an object that is gone from one to an object that is there. The API server says
// 409 or 422 for another UID, and 409, 404 or 403 (no right to create) for none.
func (w *Writer) explain(ctx context.Context, target Target, err error, subresource string) error {
	forbidden := apierrors.IsForbidden(err)
	if !forbidden && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return err
	}
	found, getErr := w.resource(target).Get(ctx, target.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(getErr):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case getErr == nil && string(found.GetUID()) != target.UID:
		return fmt.Errorf("%w, another one has its name: %w", ErrGone, err)
	case forbidden:
		return fmt.Errorf("%w: add the verb patch on %s to the role of this account: %w",
			ErrForbidden, target.GVR.GroupResource().String()+subresource, err)
	case getErr == nil && apierrors.IsInvalid(err) && target.Version != "" && found.GetResourceVersion() != target.Version:
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

func (w *Writer) resource(target Target) dynamic.ResourceInterface {
	return w.dynamic.Resource(target.GVR).Namespace(target.Namespace)
}

// Event records an Event on the object. It never blocks: what does not fit the queue is dropped and counted.
func (w *Writer) Event(target Target, severity drivers.Severity, reason, message string) {
	w.events.record(target, severity, reason, message)
}

// Dropped returns how many Events were dropped because the API server was too slow to take them.
func (w *Writer) Dropped() int64 { return w.events.dropped.Load() }

// Close records no further Events, writes those that wait until the context ends, and returns when all is over.
func (w *Writer) Close(ctx context.Context) { w.events.close(ctx) }

func untyped(texts map[string]string) map[string]any {
	out := make(map[string]any, len(texts))
	for key, value := range texts {
		out[key] = value
	}
	return out
}

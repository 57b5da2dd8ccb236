// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Cause tells apart why a watch does not work.
type Cause string

// The causes. Unreachable is everything that may pass by itself: no connection, a server's error, a timeout.
const (
	Unauthorized Cause = "unauthorized" // 401: the credentials
	Forbidden    Cause = "forbidden"    // 403: missing RBAC
	NotServed    Cause = "not-served"   // 404: the API server lacks the resource
	BadSelector  Cause = "bad-selector" // 400: the API server does not select by such fields
	Unreachable  Cause = "unreachable"
)

// Error is why one watch of a driver does not work.
type Error struct {
	Driver    string
	Watch     string
	GVR       schema.GroupVersionResource
	Namespace string
	Source    bool
	Cause     Cause
	// Verbs are the verbs that RBAC lacks; only with Forbidden.
	Verbs []string
	// FieldSelector is the watch's.
	FieldSelector string
	Err           error
}

// Error says in one line what does not work, where, why and what to do.
func (e *Error) Error() string {
	what := fmt.Sprintf("watch %q of driver %q: ", e.Watch, e.Driver)
	where := resourceText(e.GVR) + " in " + placeText(e.Namespace)
	switch e.Cause {
	case Unauthorized:
		return fmt.Sprintf("%sthe API server does not accept the credentials (401) for %s: check [kubernetes] kubeconfig "+
			"or token_file: %v",
			what, where, e.Err)
	case Forbidden:
		return fmt.Sprintf("%smay not %s %s (403): %s: %v", what, strings.Join(e.Verbs, " and "), where, e.rule(), e.Err)
	case NotServed:
		return fmt.Sprintf("%sthe API server does not serve %s (404): install it, or disable the driver: %v",
			what, resourceText(e.GVR), e.Err)
	case BadSelector:
		return fmt.Sprintf("%sthe API server does not select %s by field selector %q (400): of custom resources only "+
			"metadata.name, metadata.namespace and what selectableFields of their definition names can be selected: fix "+
			"the driver, or the definition: %v",
			what, resourceText(e.GVR), e.FieldSelector, e.Err)
	case Unreachable:
	}
	return fmt.Sprintf("%scannot list and watch %s: %v", what, where, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// rule is the RBAC rule to add.
func (e *Error) rule() string {
	role := "the ClusterRole"
	if e.Namespace != "" {
		role = fmt.Sprintf("the Role in namespace %q", e.Namespace)
	}
	return fmt.Sprintf(`add to %s of this account the rule {apiGroups: [%q], resources: [%q], verbs: ["list", "watch"]}`,
		role, e.GVR.Group, e.GVR.Resource)
}

// SyncError holds every watch of a driver whose cache could not be filled, in the order of its watches.
type SyncError struct{ Failures []*Error }

// Error joins the failures in one line.
func (e *SyncError) Error() string {
	texts := make([]string, 0, len(e.Failures))
	for _, f := range e.Failures {
		texts = append(texts, f.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the failures.
func (e *SyncError) Unwrap() []error {
	errs := make([]error, 0, len(e.Failures))
	for _, f := range e.Failures {
		errs = append(errs, f)
	}
	return errs
}

// NeedsOnly says that every source watch is synced, so that the driver can work: what it needs of the others is
// Unknown.
func (e *SyncError) NeedsOnly() bool {
	for _, f := range e.Failures {
		if f.Source {
			return false
		}
	}
	return true
}

// failure is what an informer remembers of an error.
type failure struct {
	cause Cause
	verbs []string
	err   error
}

// denied says that the API server refuses this account.
func (f *failure) denied() bool {
	return f != nil && (f.cause == Forbidden || f.cause == Unauthorized)
}

var errNoAnswer = errors.New("no answer yet")

// classify returns nil for errors that are no news: the end of a context and an expired resource version.
func classify(verb string, err error) *failure {
	switch {
	case err == nil, errors.Is(err, context.Canceled), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return nil
	case apierrors.IsUnauthorized(err):
		return &failure{cause: Unauthorized, err: err}
	case apierrors.IsForbidden(err):
		return &failure{cause: Forbidden, verbs: []string{verb}, err: err}
	case apierrors.IsNotFound(err):
		return &failure{cause: NotServed, err: err}
	}
	return &failure{cause: Unreachable, err: err}
}

func resourceText(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return gvr.Resource + " (" + gvr.Version + ")"
	}
	return gvr.Resource + " (" + gvr.Group + "/" + gvr.Version + ")"
}

func placeText(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return fmt.Sprintf("namespace %q", namespace)
}

// SPDX-License-Identifier: Apache-2.0

// Package watch keeps caches of the Kubernetes objects that drivers are concerned with and says which source objects
// to reconcile when something changed. It must never change an object, and never take an error for an empty list.
//
//	API server ──list, watch──▶ informer (one per distinct watch, union of fields)
//	                               │ compare, per driver
//	                               ▼
//	                         Subscription ──wake(key, reason)──▶ the caller's queue
//
// Only keys travel. What an object is now is read from the cache, by Get and Answer.
package watch

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

// Key names one object of one watch of a driver. Namespace is empty for cluster-scoped objects.
type Key struct{ Watch, Namespace, Name string }

// String returns the key in a form that people can read, for example "pods default/web-0".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Watch + " " + k.Name
	}
	return k.Watch + " " + k.Namespace + "/" + k.Name
}

// State says what a cache knows of an object or of a selection of objects.
type State int

// The states. Unknown is never the same as Absent: the cache is not filled yet, or the API server forbids the watch.
const (
	Unknown State = iota
	Present
	Absent
)

// String returns "unknown", "present" or "absent".
func (s State) String() string {
	switch s {
	case Present:
		return "present"
	case Absent:
		return "absent"
	case Unknown:
		return "unknown"
	}
	return "invalid"
}

// Reason says why a key was woken, for logs and for status.
type Reason string

// The reasons. Recreated means that another object of the same name (another UID) took the place of the one that was
// known.
const (
	Added       Reason = "added"
	Updated     Reason = "updated"
	Recreated   Reason = "recreated"
	Deleted     Reason = "deleted"
	NeedChanged Reason = "need-changed"
	NeedSynced  Reason = "need-synced"
)

// Meta is what the core needs to know of an object beside what its driver reads.
type Meta struct {
	UID             string
	Generation      int64
	ResourceVersion string
	// Created is when the object was created, in whole seconds; zero: not known.
	Created time.Time
	// Deleting says that the object has a deletionTimestamp.
	Deleting bool
	// Annotations and Labels hold the kept keys of the subscription only.
	Annotations map[string]string
	Labels      map[string]string
	// Owned holds, by field manager, what was written by server-side apply under managers with ManagerPrefix.
	Owned map[string]Owned
}

// Owned are the annotation and label keys, and the parts of the status, that one field manager owns on an object,
// sorted.
type Owned struct{ Annotations, Labels, Status []string }

// KeepIngress among the keys that a subscription keeps has Meta.Annotations hold, under that name, which no
// annotation can have, the addresses of status.loadBalancer.ingress, separated by blanks.
const KeepIngress = "status:loadBalancer"

// ManagerPrefix is what the names of Raven's field managers begin with.
const ManagerPrefix = "raven-"

// Status is what is known of one watch, for people and for metrics.
type Status struct {
	Watch     string
	GVR       schema.GroupVersionResource
	Namespace string
	Source    bool
	Optional  bool
	// Synced says that the cache was filled once. Absent says that the API server does not serve the resource.
	Synced bool
	Absent bool
	// Objects is the number of objects in the cache.
	Objects int
	// LastEvent is when the API server last said anything, bookmarks included; zero is never. LastEventAge is the time
	// since.
	LastEvent    time.Time
	LastEventAge time.Duration
	// Cause and Error tell why the watch is not working now; empty when it works.
	Cause Cause
	Error string
}

// Access asks what this account may do.
type Access interface {
	// Missing returns those of the verbs that are not allowed on the resource. An error means that it is not known.
	Missing(ctx context.Context, gvr schema.GroupVersionResource, namespace string, verbs ...string) ([]string, error)
}

// Discovery asks what the API server serves.
type Discovery interface {
	// Served says whether the resource is served. An error means that it is not known.
	Served(ctx context.Context, gvr schema.GroupVersionResource) (bool, error)
}

// Clients are the ways to one API server; see NewClients.
type Clients struct {
	Dynamic dynamic.Interface
	// Metadata reads watches of which only metadata is read. Optional.
	Metadata metadata.Interface
	// Discovery confirms that a resource is not served. Without it, a 404 is believed.
	Discovery Discovery
	// Access explains a 403. Without it, a 403 is believed.
	Access Access

	closeIdle func()
}

// Close gives up idle connections.
func (c Clients) Close() {
	if c.closeIdle != nil {
		c.closeIdle()
	}
}

// Config is what a Manager needs.
type Config struct {
	Clients
	Logger *slog.Logger
	Clock  clock.Clock
	// SyncTimeout bounds each call of WaitSynced; 0 is one minute.
	SyncTimeout time.Duration
	// RecheckPeriod is how often a resource that is not served is searched for again; 0 is half a minute.
	RecheckPeriod time.Duration
	// ListOnly fills caches by lists, never by streaming lists.
	ListOnly bool
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.SyncTimeout == 0 {
		c.SyncTimeout = time.Minute
	}
	if c.RecheckPeriod == 0 {
		c.RecheckPeriod = 30 * time.Second
	}
	return c
}

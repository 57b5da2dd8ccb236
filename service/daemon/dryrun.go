// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"

	"github.com/kuryr/raven/service/reconcile"
)

// DryRun is what a daemon would change now, were one running with the configuration.
type DryRun struct {
	Cluster, Project string
	Objects          []reconcile.Planned
	// Held are the deletions that would be held back.
	Held []reconcile.Guard
	// Unread are objects of files that no enabled driver translates.
	Unread []Unread
	// Unchanged are objects of files that a driver translates and that need nothing.
	Unchanged []string
}

// Plan says what would be changed now. Nothing is written, neither to the cloud nor to Kubernetes.
func (l *Settings) Plan(ctx context.Context) (DryRun, error) {
	r, err := prepare(ctx, l, slog.New(slog.DiscardHandler), nil) // what matters stands in the plan
	if err != nil {
		return DryRun{}, err
	}
	defer r.stop(context.WithoutCancel(ctx))
	if err := r.waitOVN(ctx); err != nil {
		return DryRun{}, err // a plan without it would create all that is in it
	}
	if err := r.start(ctx); err != nil {
		return DryRun{}, err
	}
	planned, err := r.engine().DryRun(ctx)
	if err != nil {
		return DryRun{}, err
	}
	return DryRun{Cluster: r.cluster, Project: r.cloud.ProjectID(), Objects: planned, Held: r.engine().Guards()}, nil
}

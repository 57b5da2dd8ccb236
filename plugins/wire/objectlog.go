// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"log/slog"

	"github.com/kuryr/raven/drivers"
)

// objectHandler says with each record which object it is about. Only who writes something pays for finding that out.
type objectHandler struct {
	slog.Handler
	object drivers.Object
}

// Handle implements slog.Handler.
func (h *objectHandler) Handle(ctx context.Context, record slog.Record) error {
	record = record.Clone()
	if meta, err := h.object.Meta(); err == nil {
		name := meta.Name
		if meta.Namespace != "" {
			name = meta.Namespace + "/" + name
		}
		record.AddAttrs(slog.String("watch", h.object.Watch), slog.String("object", name))
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h *objectHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &objectHandler{Handler: h.Handler.WithAttrs(attrs), object: h.object}
}

// WithGroup implements slog.Handler.
func (h *objectHandler) WithGroup(name string) slog.Handler {
	return &objectHandler{Handler: h.Handler.WithGroup(name), object: h.object}
}

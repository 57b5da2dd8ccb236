// SPDX-License-Identifier: Apache-2.0

package writeback

import (
	"context"
	"fmt"

	"github.com/kuryr/raven/drivers"
)

// Pass returns the context of a write that may be sent now, which must be cancelled; it ends when the write may not
// go on. An error says that this process may not write (any more).
type Pass func(ctx context.Context) (context.Context, context.CancelFunc, error)

// Fenced is a Writer for one of several processes, of which only one may write at a time: each write is let pass
// first. It would otherwise force what it believes over what another has written since.
type Fenced struct {
	writer *Writer
	pass   Pass
}

// NewFenced returns a Writer behind a fence.
func NewFenced(w *Writer, pass Pass) *Fenced { return &Fenced{w, pass} }

// Apply is Writer.Apply.
func (f *Fenced) Apply(
	ctx context.Context, target Target, manager string, annotations, labels map[string]string,
) error {
	ctx, leave, err := f.pass(ctx)
	if err != nil {
		return fmt.Errorf("writing on %s: %w", target, err)
	}
	defer leave()
	return f.writer.Apply(ctx, target, manager, annotations, labels)
}

// ApplyIngress is Writer.ApplyIngress.
func (f *Fenced) ApplyIngress(ctx context.Context, target Target, manager string, addresses []string) error {
	ctx, leave, err := f.pass(ctx)
	if err != nil {
		return fmt.Errorf("writing the status of %s: %w", target, err)
	}
	defer leave()
	return f.writer.ApplyIngress(ctx, target, manager, addresses)
}

// Event is Writer.Event. What may not be written is dropped: whoever may says it.
func (f *Fenced) Event(target Target, severity drivers.Severity, reason, message string) {
	_, leave, err := f.pass(context.Background())
	if err != nil {
		return
	}
	leave()
	f.writer.Event(target, severity, reason, message)
}

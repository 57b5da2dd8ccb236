// SPDX-License-Identifier: Apache-2.0

// Package conf holds what the drivers of the tree have in common about their options: the configuration that a
// driver keeps, and the options that several of them declare. It must never know what a driver makes of them.
package conf

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kuryr/raven/drivers"
)

// Of is the part of a driver that takes its options and keeps what they say, a C.
type Of[C any] struct {
	driver string
	parse  func(drivers.Values) (C, error)
	kept   atomic.Pointer[C]
}

// New returns one without a configuration, for a driver that reads its options by parse.
func New[C any](driver string, parse func(drivers.Values) (C, error)) *Of[C] {
	return &Of[C]{driver: driver, parse: parse}
}

// UnconfiguredError says that a driver was asked to translate before it had its options.
type UnconfiguredError struct{ Driver string }

func (e *UnconfiguredError) Error() string {
	return fmt.Sprintf("%s driver: Translate before Configure", e.Driver)
}

// Configure implements drivers.Driver. A configuration that is refused leaves the one before in force.
func (o *Of[C]) Configure(_ context.Context, values drivers.Values) error {
	c, err := o.parse(values)
	if err != nil {
		return err
	}
	o.kept.Store(&c)
	return nil
}

// Config returns the configuration; without one the error is an *UnconfiguredError.
func (o *Of[C]) Config() (*C, error) {
	if c := o.kept.Load(); c != nil {
		return c, nil
	}
	return nil, &UnconfiguredError{o.driver}
}

// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// step is one piece of bringing a stack up. It begins when all that it comes after are done.
type step struct {
	name  string
	after []string
	do    func(context.Context) error
}

// stepError is what a step failed with.
type stepError struct {
	name string
	err  error
}

func (e *stepError) Error() string { return e.name + ": " + e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// runSteps does them, as many at once as their order allows, and prints each with the time it took. The first that
// fails stops the others; its error names it. Where the time is over before any fails, the error has what each says
// that had begun, and names the others.
func runSteps(ctx context.Context, steps []step, progress io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(map[string]chan struct{}, len(steps))
	for _, s := range steps {
		done[s.name] = make(chan struct{})
	}
	for _, s := range steps {
		for _, name := range s.after {
			if done[name] == nil {
				return fmt.Errorf("step %s comes after %s, which there is not", s.name, name)
			}
		}
	}
	var (
		all    sync.WaitGroup
		mu     sync.Mutex // of what follows, and of progress
		failed = map[string]error{}
		began  = time.Now()
	)
	for _, s := range steps {
		all.Go(func() {
			for _, name := range s.after {
				select {
				case <-done[name]:
				case <-ctx.Done():
					return
				}
			}
			start := time.Now()
			if err := s.do(ctx); err != nil {
				err = &stepError{name: s.name, err: err}
				mu.Lock()
				defer mu.Unlock()
				failed[s.name] = err
				cancel(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(progress, "[%6.1fs] %s (%.1fs)\n", time.Since(began).Seconds(), s.name, time.Since(start).Seconds())
			close(done[s.name])
		})
	}
	all.Wait()
	err := context.Cause(ctx)
	var culprit *stepError
	if errors.As(err, &culprit) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return overdue(err, steps, done, failed)
}

// overdue is the error of steps that ran out of time: what those say that had begun, and which ones waited for them.
func overdue(cause error, steps []step, done map[string]chan struct{}, failed map[string]error) error {
	var begun []error
	var names, waiting []string
	for _, s := range steps {
		select {
		case <-done[s.name]:
			continue
		default:
		}
		if err := failed[s.name]; err != nil {
			names, begun = append(names, s.name), append(begun, err)
		} else {
			waiting = append(waiting, s.name)
		}
	}
	text := "before these were done: " + strings.Join(names, ", ")
	if len(waiting) > 0 {
		text += "; these had not begun: " + strings.Join(waiting, ", ")
	}
	if len(begun) == 0 {
		return fmt.Errorf("%w %s", cause, text)
	}
	return fmt.Errorf("%w %s\n%w", cause, text, errors.Join(begun...))
}

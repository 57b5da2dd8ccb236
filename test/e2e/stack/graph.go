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

// runSteps does them, as many at once as their order allows, and prints each with the time it took. The first that fails stops
// the others; its error names it.
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
		all   sync.WaitGroup
		write sync.Mutex
		began = time.Now()
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
				cancel(fmt.Errorf("%s: %w", s.name, err))
				return
			}
			write.Lock()
			defer write.Unlock()
			fmt.Fprintf(progress, "[%6.1fs] %s (%.1fs)\n", time.Since(began).Seconds(), s.name, time.Since(start).Seconds())
			close(done[s.name])
		})
	}
	all.Wait()
	err := context.Cause(ctx)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w before these were done: %s", err, strings.Join(undone(steps, done), ", "))
	}
	return err
}

func undone(steps []step, done map[string]chan struct{}) []string {
	var names []string
	for _, s := range steps {
		select {
		case <-done[s.name]:
		default:
			names = append(names, s.name)
		}
	}
	return names
}

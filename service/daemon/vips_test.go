// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
)

// TestUntilKnown: a service that does not answer is asked again, and no more once it has answered and that was taken.
func TestUntilKnown(t *testing.T) {
	t.Parallel()
	for name, single := range map[string]bool{"one address": true, "several": false} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Now())
			asked, told := 0, 0
			done := make(chan struct{})
			go func() {
				defer close(done)
				err := untilKnown(t.Context(), clk, time.Minute, func(context.Context) (bool, error) {
					if asked++; asked < 3 {
						return false, errors.New("away")
					}
					return single, nil
				}, func(context.Context) error {
					if told++; told == 1 {
						return errors.New("the driver is away")
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				default:
					if clk.HasWaiters() {
						clk.Step(time.Minute)
					}
					time.Sleep(time.Millisecond)
				}
			}
			if want := map[bool][2]int{true: {4, 2}, false: {3, 0}}[single]; want != [2]int{asked, told} {
				t.Errorf("asked %d times, told %d times", asked, told)
			}
		})
	}
}

type told struct {
	values drivers.Values
	err    error
}

func (d *told) Configure(_ context.Context, values drivers.Values) error {
	d.values = values
	return d.err
}

// TestSeparateLater: only a driver to which it was left is told, and translates anew if it takes it.
func TestSeparateLater(t *testing.T) {
	t.Parallel()
	with := func(value string) drivers.Values { return drivers.Values{"octavia_defaults": {"dual_stack": value}} }
	for name, c := range map[string]struct {
		values drivers.Values
		err    error
		want   string
		again  []string
	}{
		"left to Raven":     {with("auto"), nil, "separate", []string{"lbaas"}},
		"decided":           {with("additional-vips"), nil, "", nil},
		"no such option":    {drivers.Values{}, nil, "", nil},
		"refused":           {with("auto"), errors.New("no"), "separate", nil},
		"decided otherwise": {with("separate"), nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := &told{err: c.err}
			var again []string
			err := separateLater(t.Context(), slog.New(slog.DiscardHandler), "lbaas", d, c.values,
				func(name string) { again = append(again, name) })
			if !errors.Is(err, c.err) {
				t.Errorf("got %v", err)
			}
			if got := d.values.String("octavia_defaults", "dual_stack"); got != c.want || !slices.Equal(again, c.again) {
				t.Errorf("told %q, again %v", got, again)
			}
		})
	}
}

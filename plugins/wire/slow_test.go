// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdktest"
	"github.com/kuryr/raven/plugins/wire"
)

// TestCancelledWhileQueued gives up many calls of a busy driver, before and after they were sent: it must owe nobody
// an answer, or it would count as stuck.
func TestCancelledWhileQueued(t *testing.T) {
	var began atomic.Int32
	driver := &scripted{translate: func(ctx context.Context, object drivers.Object,
		_ *drivers.Needs,
	) (drivers.Set, error) {
		meta, err := object.Meta()
		if err != nil || meta.Name == "fine" {
			return network(meta.Name), err
		}
		began.Add(1)
		<-ctx.Done()
		return drivers.Set{}, ctx.Err()
	}}
	const workers, calls = 2, 2000
	client := sdktest.ConnectWith(t, driver, wire.ServerConfig{Workers: workers}, wire.ClientConfig{Timeout: time.Minute})
	for _, when := range []string{"at once", "when the driver is busy"} {
		t.Run(when, func(t *testing.T) {
			before := began.Load()
			ctx, cancel := context.WithCancel(t.Context())
			var wait sync.WaitGroup
			for i := range calls {
				wait.Go(func() {
					own, leave := context.WithCancel(ctx)
					defer leave()
					if when == "at once" {
						go leave()
					}
					if _, err := client.Translate(own, named(fmt.Sprint(i)), drivers.NewNeeds(nil)); !errors.Is(err,
						context.Canceled) {
						t.Errorf("%d: %v", i, err)
					}
				})
			}
			if when != "at once" {
				for began.Load()-before < workers {
					time.Sleep(time.Millisecond)
				}
			}
			cancel()
			wait.Wait()
			until := time.Now().Add(2 * time.Minute)
			for client.InFlight() > 0 || client.Overdue() > 0 {
				if time.Now().After(until) {
					t.Fatalf("%d calls are still in flight, one for %s too long", client.InFlight(), client.Overdue())
				}
				time.Sleep(time.Millisecond)
			}
			if when != "at once" && began.Load()-before > calls/2 {
				t.Errorf("the driver began with %d of %d cancelled calls", began.Load()-before, calls)
			}
			if _, err := client.Translate(t.Context(), named("fine"), drivers.NewNeeds(nil)); err != nil {
				t.Errorf("another call afterwards: %v", err)
			}
		})
	}
}

// TestQueueingTakesNoTime has more work than the driver can do within the time of one object.
func TestQueueingTakesNoTime(t *testing.T) {
	const each, calls, timeout = 25 * time.Millisecond, 600, 3 * time.Second
	driver := &scripted{translate: func(_ context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
		meta, err := object.Meta()
		time.Sleep(each)
		return network(meta.Name), err
	}}
	client := sdktest.ConnectWith(t, driver, wire.ServerConfig{Workers: 2}, wire.ClientConfig{Timeout: timeout})
	began := time.Now()
	var wait sync.WaitGroup
	for i := range calls {
		wait.Go(func() {
			if _, err := client.Translate(t.Context(), named(fmt.Sprint(i)), drivers.NewNeeds(nil)); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wait.Wait()
	if took := time.Since(began); took < 2*timeout {
		t.Errorf("took %s: too little to show anything", took)
	}
}

// TestDriversClockStartsWithTheWork sends items that wait in the driver longer than their time: the server itself
// must not count that.
func TestDriversClockStartsWithTheWork(t *testing.T) {
	driver := &scripted{translate: func(ctx context.Context, object drivers.Object,
		_ *drivers.Needs,
	) (drivers.Set, error) {
		meta, err := object.Meta()
		if err != nil {
			return drivers.Set{}, err
		}
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left < 59*time.Second {
			return drivers.Set{}, fmt.Errorf("only %s left of a minute", left)
		}
		time.Sleep(300 * time.Millisecond)
		return network(meta.Name), nil
	}}
	client := sdktest.ConnectWith(t, driver, wire.ServerConfig{Workers: 1}, wire.ClientConfig{Timeout: time.Minute})
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			if _, err := client.Translate(t.Context(), named(fmt.Sprint(i)), drivers.NewNeeds(nil)); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wait.Wait()
}

func TestLateDriver(t *testing.T) {
	driver := &scripted{translate: func(ctx context.Context, _ drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
		<-ctx.Done()
		return drivers.Set{}, ctx.Err()
	}}
	client := sdktest.ConnectWith(t, driver, wire.ServerConfig{}, wire.ClientConfig{Timeout: 50 * time.Millisecond})
	var own *wire.Error
	if _, err := client.Translate(t.Context(), named("a"), drivers.NewNeeds(nil)); !errors.As(err, &own) ||
		own.Code != wire.Deadline {
		t.Errorf("got %v", err)
	}
}

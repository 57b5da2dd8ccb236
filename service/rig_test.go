// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/test/harness"
)

// journal records what happened, in order.
type journal struct {
	mu     sync.Mutex
	events []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf(format, args...))
}

func (j *journal) has(event string) bool { return slices.Contains(j.all(), event) }

func (j *journal) count(event string) (n int) {
	for _, e := range j.all() {
		if e == event {
			n++
		}
	}
	return n
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

// fake is a service whose every method can be made to misbehave.
type fake struct {
	name string
	*journal
	start, stop, reset func(context.Context) error
	ended              chan error
	once               sync.Once
}

func newFake(j *journal, name string) *fake {
	return &fake{name: name, journal: j, ended: make(chan error, 1)}
}

func call(f func(context.Context) error, ctx context.Context) error { //nolint:revive // the function is the subject
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (f *fake) Start(ctx context.Context) error {
	f.add("start %s", f.name)
	return call(f.start, ctx)
}

func (f *fake) Stop(ctx context.Context, graceful bool) error {
	if !graceful {
		f.add("end %s", f.name)
		f.end(nil)
		return nil
	}
	f.add("stop %s", f.name)
	err := call(f.stop, ctx)
	f.end(nil)
	return err
}

func (f *fake) end(err error) { f.once.Do(func() { f.ended <- err; close(f.ended) }) }

func (f *fake) Wait() error { return <-f.ended }

func (f *fake) Reset(ctx context.Context) error {
	f.add("reset %s", f.name)
	return call(f.reset, ctx)
}

// rig is a launcher under test.
type rig struct {
	*journal
	clock    *clocktesting.FakeClock
	signals  chan os.Signal
	log      *harness.Buffer
	config   service.Config
	launcher *service.Launcher
	result   chan error
	ctx      context.Context
	cancel   context.CancelFunc
}

func newRig(t *testing.T, grace time.Duration, notify *service.Notifier) *rig {
	t.Helper()
	r := &rig{
		journal: &journal{}, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), signals: make(chan os.Signal, 4),
		log: &harness.Buffer{}, result: make(chan error, 1),
	}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	r.config = service.Config{
		Logger: slog.New(slog.NewTextHandler(r.log, nil)), Clock: r.clock, Signal: r.signals, Notify: notify,
		Grace: func() time.Duration { return grace },
	}
	r.launcher = service.NewLauncher(r.config)
	return r
}

// configure changes the launcher's configuration; before anything is added.
func (r *rig) configure(change func(*service.Config)) {
	change(&r.config)
	r.launcher = service.NewLauncher(r.config)
}

func (r *rig) run(services ...*fake) {
	for _, s := range services {
		r.launcher.Add(s.name, s)
	}
	go func() { r.result <- r.launcher.Run(r.ctx) }()
}

// patience ends a test that would wait for ever.
const patience = 2 * time.Minute

func (r *rig) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.result:
		return err
	case <-time.After(patience):
		t.Fatalf("the launcher does not end; so far: %v\n%s", r.all(), r.log)
		return nil
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func (r *rig) running(t *testing.T) {
	t.Helper()
	eventually(t, "started", func() bool { return strings.Contains(r.log.String(), "msg=started") })
}

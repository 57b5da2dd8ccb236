// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
)

// Bare is a driver's process without a supervisor between it and its caller: started, checked and confined as any
// other, but neither asked for anything yet nor supervised. It is for those who put a driver to the test.
type Bare struct {
	instance *instance
	folder   *folder
	timeouts Timeouts
}

// Open starts a driver and shakes hands with it. Of config, what is about its process counts. The caller must Stop it.
func Open(ctx context.Context, config Config) (*Bare, error) {
	p := &Plugin{config: config.withDefaults()} // by which errors name the driver
	if config.Attach != "" {
		return nil, p.wrap(errors.New("a driver that is attached to has no process that Raven started"))
	}
	folder, err := newFolder(config.RuntimeDir)
	if err != nil {
		return nil, p.wrap(err)
	}
	i, err := execute(ctx, p.config, folder.path, (*instance).dial)
	if err != nil {
		return nil, errors.Join(p.wrap(err), folder.remove())
	}
	return &Bare{i, folder, p.config.Timeouts}, nil
}

// Conn is the connection to it.
func (b *Bare) Conn() grpc.ClientConnInterface { return b.instance.conn }

// PID is its process.
func (b *Bare) PID() int { return b.instance.process.pid() }

// Printed returns the last lines that it wrote, as the end of a sentence; empty if there are none.
func (b *Bare) Printed() string { return b.instance.process.lastWords() }

// asked is how long a driver gets to end by itself once it was asked to, before go-plugin ends it.
const asked = 2 * time.Second

// Stop ends it, with all that it started, and says whether it ended by itself when it was asked to.
func (b *Bare) Stop(ctx context.Context) (orderly bool) {
	began := time.Now()
	err := b.instance.stop(ctx, b.timeouts, true)
	return errors.Join(err, b.folder.remove()) == nil && time.Since(began) < asked-asked/20
}

// Orphan closes Raven's end of the lifeline, and says whether the process ended by itself in time.
func (b *Bare) Orphan(within time.Duration) bool {
	_ = b.instance.process.lifeline.Close()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-b.instance.process.exited:
		return true
	case <-timer.C:
		return false
	}
}

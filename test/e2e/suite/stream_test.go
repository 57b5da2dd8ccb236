// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"
	"time"
)

// stream is a flow of datagrams from one port, or a connection.
type stream struct {
	began  time.Time
	mu     sync.Mutex // guards what follows
	last   string
	at     time.Time
	gap    time.Duration // the longest between two answers
	counts map[string]int
}

// flow begins one, which ends with the test.
func (n *nic) flow(t *testing.T, protocol, address string) *stream {
	t.Helper()
	cmd, out := n.begin(context.Background(), t, "flow "+protocol+" "+net.JoinHostPort(address, "80"))
	f := &stream{began: time.Now(), counts: map[string]int{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			f.take(lines.Text(), time.Now())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	await(t, "the flow from "+n.pod+" to be answered", func(context.Context) string {
		if who, _ := f.now(); who == "" {
			return "nobody answers"
		}
		return ""
	})
	f.forget()
	return f
}

func (f *stream) take(who string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.at.IsZero() {
		f.gap = max(f.gap, at.Sub(f.at))
	}
	f.last, f.at = who, at
	f.counts[who]++
}

func (f *stream) now() (last string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.at
}

// forget begins to measure the gap anew.
func (f *stream) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gap, f.at = 0, time.Now()
	clear(f.counts)
}

func (f *stream) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.gap, time.Since(f.at))
}

// ages waits until Open vSwitch has forgotten how the flow began. It keeps the choice of an endpoint for 10 s
// (max-idle) after the packet that asked for it; while it does, OVN can lose a race: it forgets the connection before
// the switch has forgotten the choice, and the next datagram takes the same endpoint again. That is so with OVN
// 23.03, and in docs/kubeproxy.md.
func (f *stream) ages(t *testing.T) {
	t.Helper()
	await(t, "the flow to be older than Open vSwitch's memory of its begin", func(context.Context) string {
		if age := time.Since(f.began); age < 12*time.Second {
			return fmt.Sprintf("it is %s old", age)
		}
		return ""
	})
}

// leaves waits until somebody else than that pod answers the flow.
func (f *stream) leaves(t *testing.T, pod string) {
	t.Helper()
	await(t, "the flow to leave "+pod, func(context.Context) string {
		if who, at := f.now(); who == pod || time.Since(at) > time.Second {
			return fmt.Sprintf("the last answer was %s's, %s ago", who, time.Since(at))
		}
		return ""
	})
}

// stays fails the test if anybody but that pod has answered since the stream last forgot, or nobody for longer than
// bound.
func (f *stream) stays(t *testing.T, pod string, bound time.Duration) {
	t.Helper()
	f.mu.Lock()
	others := maps.Clone(f.counts)
	f.mu.Unlock()
	delete(others, pod)
	if gap := f.longest(); len(others) > 0 || gap > bound {
		t.Errorf("the flow to %s was answered by others as well %v, and by nobody for %s", pod, others,
			gap.Round(time.Millisecond))
	}
}

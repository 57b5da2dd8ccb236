// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Notifier tells systemd about the service's state (sd_notify). A nil Notifier sends nothing. Why it is no library:
// docs/adr/0016-sd-notify-without-a-library.md.
type Notifier struct {
	address  string
	watchdog time.Duration

	mu   sync.Mutex // guards last
	last string     // the last status
}

// NewNotifier reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID by getenv, for example os.Getenv. Without a socket
// it returns nil.
func NewNotifier(getenv func(string) string) *Notifier {
	address := getenv("NOTIFY_SOCKET")
	if address == "" || !strings.ContainsAny(address[:1], "/@") {
		return nil
	}
	n := &Notifier{address: address}
	pid := getenv("WATCHDOG_PID")
	micros, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err == nil && micros > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(micros) * time.Microsecond
	}
	return n
}

// Send sends assignments in one datagram, for example "READY=1". A manager that does not listen is no error: it
// is dropped.
func (n *Notifier) Send(assignments ...string) {
	if n == nil {
		return
	}
	state := strings.Join(assignments, "\n")
	// A leading @ is the abstract namespace. Nothing is waited for: there is no handshake with a datagram socket.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()                                     //nolint:errcheck // nothing is buffered
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a socket's deadline is wall time by nature
	_, _ = conn.Write([]byte(state))
}

// Status sends one line for people, as systemctl status shows it, unless it was the last one sent.
func (n *Notifier) Status(format string, args ...any) { n.status("", format, args...) }

// status is Status, but only while the last status was the one given, if any is given.
func (n *Notifier) status(instead, format string, args ...any) string {
	if n == nil {
		return ""
	}
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	n.mu.Lock()
	defer n.mu.Unlock()
	if text == n.last || instead != "" && instead != n.last {
		return n.last
	}
	n.last = text
	n.Send("STATUS=" + text) // under the lock, so that the last one sent is the last one
	return text
}

// reloading says that a reload begins; since systemd 253 with Type=notify-reload wants to know when, in microseconds.
func (n *Notifier) reloading() {
	assignments := []string{"RELOADING=1"}
	if micros, ok := monotonicMicros(); ok {
		assignments = append(assignments, "MONOTONIC_USEC="+strconv.FormatInt(micros, 10))
	}
	n.Send(assignments...)
}

// stopping says that a stop begins, and asks systemd to wait as long as it may take: grace, force, and a little;
// without a grace until the second tick of the watchdog from now, so that it has to be said again. Where the unit's
// TimeoutStopSec is longer, that holds.
func (n *Notifier) stopping(grace, force time.Duration) {
	if n == nil {
		return
	}
	const little = 5 * time.Second
	wait := grace + force + little
	if grace <= 0 {
		wait = n.watchdog + little
	}
	n.Send("STOPPING=1", "EXTEND_TIMEOUT_USEC="+strconv.FormatInt(wait.Microseconds(), 10))
}

// watchdog ticks twice per watchdog period. It is served by the launcher's loop, so that one that hangs is noticed.
func (r *run) watchdog() (<-chan time.Time, func()) {
	if r.Notify == nil || r.Notify.watchdog <= 0 {
		return nil, func() {}
	}
	ticker := r.Clock.NewTicker(r.Notify.watchdog / 2)
	return ticker.C(), ticker.Stop
}

// alive answers systemd's watchdog, unless a loop that must not stand still does.
func (r *run) alive() {
	stalled := r.Progress.Stalled()
	if len(stalled) == 0 {
		r.Notify.Send("WATCHDOG=1")
		return
	}
	r.Logger.Error("loops stand still, so the watchdog is not answered", "loops", stalled)
	r.Notify.Status("these stand still: %s", strings.Join(stalled, ", "))
}

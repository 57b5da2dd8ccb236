package service

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier tells systemd about the service's state (sd_notify). A nil Notifier tells nobody.
type Notifier struct {
	address  string
	watchdog time.Duration
}

// NewNotifier reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID by getenv, for example os.Getenv. Without a socket it returns nil.
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

// Send sends one assignment, for example "READY=1". A manager that does not listen is nobody's error: it is dropped.
func (n *Notifier) Send(state string) {
	if n == nil {
		return
	}
	// A leading @ is the abstract namespace. Nothing is waited for: there is no handshake with a datagram socket.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()                                     //nolint:errcheck // nothing is buffered
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a socket's deadline is wall time by nature
	_, _ = conn.Write([]byte(state))
}

// Status sends one line for people, as systemctl status shows it.
func (n *Notifier) Status(format string, args ...any) {
	n.Send("STATUS=" + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// watchdog ticks twice per watchdog period. It is served by the launcher's loop, so a loop that hangs is noticed.
func (r *run) watchdog() (<-chan time.Time, func()) {
	if r.Notify == nil || r.Notify.watchdog <= 0 {
		return nil, func() {}
	}
	ticker := r.Clock.NewTicker(r.Notify.watchdog / 2)
	return ticker.C(), ticker.Stop
}

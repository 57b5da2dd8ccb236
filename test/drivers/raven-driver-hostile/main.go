// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-hostile is a driver that attacks its host: each object that it is given is the order to try
// something, and the name of the network in its answer says what came of it. It must never be installed anywhere:
// tests show by it what a driver cannot do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdk"
)

func main() {
	if len(os.Args) > 1 {
		perform(os.Args[1])
	}
	if err := os.Setenv("RAVEN_LIFELINE_FD", ""); err != nil { // it does not end with Raven by itself
		panic(err)
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	sdk.Serve(&hostile{})
}

type hostile struct{}

func (*hostile) Info() drivers.Info {
	return drivers.Info{Name: "hostile", Version: "6.6.6", Kinds: []drivers.Kind{drivers.KindNetwork}}
}
func (*hostile) Configure(context.Context, drivers.Values) error { return nil }

func (*hostile) Watches() []drivers.Watch {
	return []drivers.Watch{
		{Name: "pods", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Source: true},
	}
}

// Translate tries what the object's name says, on what its annotation "on" names. The answer begins with "got " where
// it succeeded.
func (*hostile) Translate(_ context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
	meta, err := object.Meta()
	if err != nil {
		return drivers.Set{}, err
	}
	attempt, ok := attempts()[meta.Name]
	if !ok {
		return drivers.Set{}, fmt.Errorf("no attempt is called %q", meta.Name)
	}
	text, err := attempt(meta.Annotations["on"])
	if err != nil {
		text = "refused: " + err.Error()
	} else {
		text = "got " + text
	}
	return drivers.Set{Resources: []drivers.Resource{{Name: "n", Spec: drivers.Network{Name: &text}}}}, nil
}

// attempts are all that it tries, by name.
func attempts() map[string]func(on string) (string, error) {
	return map[string]func(string) (string, error){
		"nothing":       func(string) (string, error) { return "nothing", nil },
		"environment":   func(string) (string, error) { return strings.Join(os.Environ(), "\n"), nil },
		"read":          read,
		"list":          list,
		"write":         func(on string) (string, error) { return on, os.WriteFile(on, []byte("x"), 0o600) },
		"remove":        func(on string) (string, error) { return on, os.Remove(on) },
		"fill":          fill,
		"core":          func(on string) (string, error) { return read(fmt.Sprintf("/proc/%d/%s", os.Getppid(), on)) },
		"core-files":    func(string) (string, error) { return list(fmt.Sprintf("/proc/%d/fd", os.Getppid())) },
		"trace":         trace,
		"peek":          peek,
		"signal":        func(string) (string, error) { return "it", syscall.Kill(os.Getppid(), 0) },
		"signal-all":    func(string) (string, error) { return "all", syscall.Kill(-1, 0) },
		"connect":       func(on string) (string, error) { return dial("unix", on) },
		"connect-tcp":   func(on string) (string, error) { return dial("tcp", on) },
		"connect-udp":   func(on string) (string, error) { return dial("udp", on) },
		"datagram":      datagram,
		"datagram-pair": datagramPair,
		"file-owner":    fileOwner,
		"renice":        func(string) (string, error) { return "19", unix.Setpriority(unix.PRIO_PROCESS, os.Getppid(), 19) },
		"affinity":      affinity,
		"idle":          idle,
		"listen-tcp":    func(string) (string, error) { return listen("tcp", "127.0.0.1:0") },
		"raw":           raw,
		"start":         start,
		"fork":          fork,
		"leave-session": func(string) (string, error) { _, err := syscall.Setsid(); return "a session", err },
		"leave-group":   leaveGroup,
		"outlive": func(string) (string, error) {
			return "no death signal", unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
		},
		"become-root":    func(string) (string, error) { return "root", syscall.Setuid(0) },
		"unshare":        func(string) (string, error) { return "namespaces", unix.Unshare(unix.CLONE_NEWUTS) },
		"mount":          func(string) (string, error) { return "a mount", unix.Mount("none", "/tmp", "tmpfs", 0, "") },
		"flood":          flood,
		"giant":          func(string) (string, error) { return strings.Repeat("x", 16<<20), nil },
		"memory":         memory,
		"shared-memory":  sharedMemory,
		"spin":           spin,
		"litter":         litter,
		"descriptors":    descriptors,
		"hang":           func(string) (string, error) { select {} },
		"exit":           func(string) (string, error) { os.Exit(9); return "", nil },
		"ignore-signals": func(string) (string, error) { signal.Ignore(); return "deaf", nil },
	}
}

func read(on string) (string, error) {
	file, err := os.Open(on)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(file, 64))
	return fmt.Sprintf("%q", data), err
}

func list(on string) (string, error) {
	entries, err := os.ReadDir(on)
	return fmt.Sprintf("%d entries", len(entries)), err
}

// fill writes into the one folder that is its own, which may be in memory.
func fill(string) (string, error) {
	signal.Ignore(unix.SIGXFSZ)
	return "room", os.WriteFile(filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "data"), make([]byte, 1<<20), 0o600)
}

func trace(string) (string, error) { return "its core", unix.PtraceAttach(os.Getppid()) }

func peek(string) (string, error) {
	local := []unix.Iovec{{Base: new(byte), Len: 1}}
	_, err := unix.ProcessVMReadv(os.Getppid(), local, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
	return "its memory", err
}

func dial(network, on string) (string, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), network, on)
	if err != nil {
		return "", err
	}
	return on, conn.Close()
}

// datagram sends without connecting, as to systemd or to the log.
func datagram(on string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return "", err
	}
	return on, unix.Sendto(fd, []byte("STOPPING=1"), 0, &unix.SockaddrUnix{Name: on})
}

// datagramPair does so by a socket that has a peer already: the kernel takes another receiver nevertheless.
func datagramPair(on string) (string, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return "", err
	}
	return on, unix.Sendmsg(pair[0], []byte("STOPPING=1"), nil, &unix.SockaddrUnix{Name: on}, 0)
}

func listen(network, on string) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), network, on)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func raw(string) (string, error) {
	_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	return "all packets", err
}

func start(string) (string, error) {
	child := exec.CommandContext(context.Background(), "/bin/sleep", "600")
	if err := child.Start(); err != nil {
		return "", err
	}
	return fmt.Sprint(child.Process.Pid), nil
}

// fork is the call itself, without what Go does about it.
func fork(string) (string, error) {
	pid, _, code := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if code != 0 {
		return "", code
	}
	if pid == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
	return fmt.Sprint(pid), nil
}

// leaveGroup goes where its core is, or would be, so that what ends its group passes it by.
func leaveGroup(string) (string, error) {
	core, err := syscall.Getpgid(os.Getppid())
	if err != nil {
		return "", err
	}
	return "another group", syscall.Setpgid(0, core)
}

func flood(string) (string, error) {
	line := []byte(strings.Repeat("spam ", 50) + "\n")
	for range 200_000 {
		if _, err := unix.Write(unix.Stderr, line); err != nil {
			return "", err
		}
	}
	return "50 MB of log", nil
}

func memory(string) (string, error) {
	var kept [][]byte
	for range 64 {
		part := make([]byte, 64<<20)
		for i := 0; i < len(part); i += 4096 {
			part[i] = 1
		}
		kept = append(kept, part)
	}
	return fmt.Sprintf("%d MiB", len(kept)*64), nil
}

func descriptors(string) (string, error) {
	for count := range 100_000 {
		if _, err := unix.Dup(0); err != nil {
			if errors.Is(err, unix.EMFILE) && count < 1000 {
				return "", err
			}
			break
		}
	}
	return "many files", nil
}

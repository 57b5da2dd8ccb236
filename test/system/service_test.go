// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestEveryMistakeIsToldAtOnce: of the core's options and of the drivers', with file and line.
func TestEveryMistakeIsToldAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.conf.Set("DEFAULT", "debug", "t").Set("raven", "sweep_limit", 0).Set("namespace_subnet", "topology", "round").
		Set("neutron_defaults", "pod_security_gruops", "x").Set("raven", "drivers", "namespace,pod,crow").
		Set("driver:crow", "sha256", "12").Set("neutron", "cloud", "nowhere")
	got := r.raven("config", "validate", "--strict", "--config-file", r.configure())
	if got.status != 1 {
		t.Errorf("the exit status is %d", got.status)
	}
	for _, want := range []string{
		`kuryr.conf:2: [DEFAULT] debug: "t" is not a boolean`, `[raven] sweep_limit: "0" is too small`,
		`[namespace_subnet] topology: "round" is not one of the choices`,
		`[neutron_defaults] pod_security_gruops: no such option; did you mean pod_security_groups?`,
		`[driver:crow] sha256: `, `cloud "nowhere"`,
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("there is no %q in:\n%s", want, got.out)
		}
	}
}

func TestDiffDefaultAndDocs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := r.raven("config", "diff-default", "--config-file", r.configure())
	for _, want := range []string{"sweep_interval = 1", "kuryr.conf:", "; default: 1m0s", "password = ****"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("there is no %q in:\n%s", want, got.out)
		}
	}
	if strings.Contains(got.out, password) || strings.Contains(got.out, "max_batch") {
		t.Errorf("it shows the secret, or what is as by default:\n%s", got.out)
	}
	docs := r.raven("config", "docs").out
	for _, want := range []string{
		"## `[namespace_subnet]`", "### `backdoor_socket`", "OS_NEUTRON__PASSWORD", "Secret: never shown.",
	} {
		if !strings.Contains(docs, want) {
			t.Errorf("there is no %q in the reference", want)
		}
	}
}

// TestMutate: with restart_method mutate, a SIGHUP changes mutable options in place, and the others it names; nothing
// is started anew.
func TestMutate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.conf.Set("DEFAULT", "restart_method", "mutate")
	// after it all is listed once more, which would be taken for a new start
	r.conf.Set("neutron", "ambiguous_create_wait", patience)
	p := r.start()
	r.createNamespace("shop")
	r.createPod("shop", "a")
	r.awaitRest(p)
	pid := p.plugin("pod")
	r.cloud.ResetLog()
	r.conf.Set("DEFAULT", "log_level", "DEBUG").Set("raven", "sweep_limit", 7).Set("health_server", "host", "localhost")
	r.configure()
	p.signal(syscall.SIGHUP)
	p.logged(`configuration changed.*log_level: INFO -> DEBUG .*kuryr.conf:`)
	p.logged(`the old value stays in force.*sweep_limit: 100 -> 7 .*restart_method`)
	p.logged(`the old value stays in force.*host: 127.0.0.1 -> localhost .*a new start`)
	r.createPod("shop", "b")
	must(t, "the port of another pod", func() string { return r.amiss(p) })
	if p.plugin("pod") != pid {
		t.Error("the driver was started anew")
	}
	if n := r.cloud.Stats().Counts["GET network"]; n != 0 {
		t.Errorf("the networks were listed again: %d times", n)
	}
	r.conf.Set("DEFAULT", "log_level", "loud")
	r.configure()
	p.signal(syscall.SIGHUP)
	p.logged(`ERROR.*reload failed.*log_level.*is not one of the choices`)
	must(t, "the old configuration at work", func() string { return r.amiss(p) })
	p.stop()
}

// TestAMutatedGraceHolds: work in flight gets the time that graceful_shutdown_timeout says now, not what it said at
// the start.
func TestAMutatedGraceHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.conf.Set("DEFAULT", "restart_method", "mutate").Set("DEFAULT", "graceful_shutdown_timeout", 2)
	p := r.start()
	r.createNamespace("shop")
	r.awaitRest(p)
	r.conf.Set("DEFAULT", "graceful_shutdown_timeout", 40)
	r.configure()
	p.signal(syscall.SIGHUP)
	p.logged(`configuration changed.*graceful_shutdown_timeout: 2s -> 40s`)
	if _, err := r.cloud.AddFault(simcloud.Rule{
		Method: http.MethodPost, Kind: "port", Times: 1, Action: simcloud.ActionDelay,
		Delay: simcloud.Duration(5 * time.Second), // longer than the first bound
	}); err != nil {
		t.Fatal(err)
	}
	r.createPod("shop", "a")
	must(t, "a create that is under way", func() string {
		for _, f := range r.cloud.Faults() {
			if f.Acted > 0 {
				return ""
			}
		}
		return "there is none"
	})
	p.signal(syscall.SIGTERM)
	if status := p.end(); status != 0 {
		t.Errorf("the exit status is %d", status)
	}
	if n := len(r.portIDs()); n != 1 { // a create whose client disconnects before its time is not carried out
		t.Errorf("there are %d ports, wanted the one whose create was under way", n)
	}
	r.cloud.ResetLog()
	again := r.start()
	must(t, "rest", func() string { return r.amiss(again) })
	if made := r.cloud.Stats().Counts["POST port"]; made != 0 {
		t.Errorf("the port was created again: %d times", made)
	}
}

// TestBackdoor: what it shows of a running daemon, to whom, and that it goes.
func TestBackdoor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	socket := r.path("door")
	r.conf.Set("DEFAULT", "backdoor_socket", socket)
	p := r.start()
	must(t, "the socket, for its user alone", func() string {
		info, err := os.Stat(socket)
		if err != nil {
			return err.Error()
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("its mode is %v", info.Mode())
		}
		return ""
	})
	r.createNamespace("shop")
	r.awaitRest(p)
	for what, want := range map[string]string{
		"/config": "password = ****", "/goroutines": "reconcile.(*Engine).Run", "/debug/pprof/heap?debug=1": "heap profile",
	} {
		if text := through(t, socket, what); !strings.Contains(text, want) || strings.Contains(text, password) {
			t.Errorf("%s: without %q, or with the password:\n%.2000s", what, want, text)
		}
	}
	p.stop()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

func through(t *testing.T, socket, what string) string {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://backdoor"+what, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSystemdIsTold: ready only when all is, what is going on, and that the core turns.
func TestSystemdIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.createNamespace("shop")
	r.createPod("shop", "a")
	path := r.path("notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test is over
	r.env = []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=200000"}
	p := r.start()
	said := &harness.Buffer{}
	read := func(until string) {
		must(t, "systemd hears "+until, func() string {
			chunk := make([]byte, 4096)
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return err.Error()
			}
			n, err := conn.Read(chunk)
			if err != nil {
				return err.Error()
			}
			_, _ = said.Write(append(chunk[:n], '\n'))
			if strings.Contains(said.String(), until) {
				return ""
			}
			return "it received " + said.String()
		})
	}
	read("READY=1")
	if text := said.String(); !strings.Contains(text, "STATUS=starting: listing this cluster's resources in the cloud") {
		t.Errorf("before it was ready systemd received:\n%s", text)
	}
	read("objects: 6 done\n") // with the namespaces that every cluster has
	read("WATCHDOG=1")
	p.signal(syscall.SIGHUP)
	read("RELOADING=1\nMONOTONIC_USEC=")
	read("READY=1")
	p.signal(syscall.SIGTERM)
	read("STOPPING=1")
	if status := p.end(); status != 0 {
		t.Errorf("the exit status is %d", status)
	}
}

// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	simkube "github.com/kuryr/raven/test/sim/kube"
)

// closedPort is an address on which no process listens, nor will until the test ends: a socket is bound to it that does
// not listen.
func closedPort(t *testing.T) string {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(socket)
	bound, ok := address.(*unix.SockaddrInet4)
	if err != nil || !ok {
		t.Fatalf("%v, %v", address, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.Port)
}

// takenPort is a port on which another process listens until the test ends.
func takenPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// mistake is what an operator may get wrong.
type mistake struct {
	name   string
	make   func(*rig) // nil: nothing but the arguments
	args   []string   // nil: run with the configuration
	status int
	says   string // a regular expression for the one line
	waits  bool   // the daemon waits until it is otherwise, other commands end
}

func daemonMistakes() []mistake {
	return []mistake{
		{
			name: "wrong password", make: func(r *rig) { r.conf.Set("neutron", "password", "wrong-"+password) },
			status: 1, says: `logging in at http://127\.0\.0\.1:\d+/v3 as user kuryr: 401`,
		},
		{
			name: "unreachable cloud", make: func(r *rig) { r.conf.Set("neutron", "auth_url", "http://"+closedPort(r.t)+"/v3") },
			waits: true, status: 1, says: `http://127\.0\.0\.1:\d+/v3.*connection refused`,
		},
		{
			name:  "unreachable network service",
			make:  func(r *rig) { r.conf.Set("neutron", "endpoint_override", "http://"+closedPort(r.t)) },
			waits: true, status: 1, says: `http://127\.0\.0\.1:\d+.*connection refused`,
		},
		{
			name: "unreachable Kubernetes API", make: func(r *rig) {
				delete(r.conf["kubernetes"], "kubeconfig")
				r.conf.Set("kubernetes", "api_root", "http://"+closedPort(r.t))
			},
			waits: true, status: 1, says: `kube-system at http://127\.0\.0\.1:\d+.*connection refused.*\[kubernetes\]`,
		},
		{
			name: "missing kubeconfig", make: func(r *rig) { r.conf.Set("kubernetes", "kubeconfig", r.path("nowhere")) },
			status: 1, says: `\[kubernetes\] kubeconfig = \S+/nowhere \(.*kuryr\.conf:\d+\).*no such file`,
		},
		{
			name: "no right to read pods", make: func(r *rig) {
				r.kube.SetTokens(map[string]string{"t": "raven"})
				r.kube.SetDeny(simkube.Deny{User: "raven", Groups: []string{"core"}, Resources: []string{"pods"}})
				r.write("kubeconfig", string(r.kube.KubeconfigFor("t")))
			},
			status: 1, says: `watch "pods" of driver "pod".*may not list.*pods.*\(403\).*ClusterRole.*resources: \["pods"\]`,
		},
		{
			name: "no right to read kube-system", make: func(r *rig) {
				r.kube.SetTokens(map[string]string{"t": "raven"})
				r.kube.SetDeny(simkube.Deny{User: "raven", Verbs: []string{"get"}, Resources: []string{"namespaces"}})
				r.write("kubeconfig", string(r.kube.KubeconfigFor("t")))
			},
			status: 1, says: `namespace kube-system at https.*forbidden.*cluster_id`,
		},
		{
			name: "wrong token", make: func(r *rig) {
				r.kube.SetTokens(map[string]string{"t": "raven"})
				r.write("kubeconfig", string(r.kube.KubeconfigFor("Pica-pica-3141")))
			},
			status: 1, says: `kube-system at https.*Unauthorized.*\[kubernetes\]`,
		},
		{
			name: "port in use", make: func(r *rig) { r.conf.Set("health_server", "port", takenPort(r.t)) },
			status: 1, says: `\[health_server\] port: 127\.0\.0\.1:\d+ is in use`,
		},
		{
			name: "unknown driver", make: func(r *rig) { r.conf.Set("raven", "drivers", "namespace,nosuch") },
			status: 1,
			says: `driver\(nosuch\): not found: no raven-driver-nosuch in \S+plugins or \S+bin, ` +
				`where the drivers .*namespace, .*pod.* are; see \[raven\] plugin_dir`,
		},
		{
			name: "no driver but one of another protocol version", make: func(r *rig) { // beside others it is left out
				r.install("otherprotocol", "plugins/raven-driver-other")
				r.conf.Set("raven", "drivers", "other")
			},
			status: 1, says: `driver\(other\): \S+/raven-driver-other speaks driver protocol 2, this Raven speaks 1`,
		},
		{
			name: "driver that is not executable", make: func(r *rig) {
				_ = os.MkdirAll(r.path("plugins"), 0o700)
				r.write("plugins/raven-driver-text", "just text")
				r.conf.Set("raven", "drivers", "text")
			},
			status: 1, says: `driver\(text\): \S+/raven-driver-text is not executable \(its mode is -rw-------\)`,
		},
		{
			name: "driver that is no program", make: func(r *rig) { r.script("junk", "\x00\x01\x02") },
			status: 1, says: `driver\(junk\): .*raven-driver-junk.*exec format error`,
		},
		{
			name: "driver that is another program", make: func(r *rig) { r.script("true", "#!/bin/sh\necho hello\n") },
			status: 1, says: `driver\(true\): \S+/raven-driver-true is not a Raven driver`,
		},
		{
			name: "driver that refuses its configuration", make: func(r *rig) {
				r.conf.Set("namespace_subnet", "cluster_subnet_pool", "10.96.0.0/16").Set("namespace_subnet", "service_cidr",
					"10.96.0.0/12")
			},
			status: 1,
			says:   `driver\(namespace\): configuration refused: \[namespace_subnet\] service_cidr: 10\.96\.0\.0/12 overlaps \[namespace_subnet\] cluster_subnet_pool`,
		},
		{
			name: "no drivers", make: func(r *rig) { r.conf.Set("raven", "drivers", "") },
			status: 1, says: `\[raven\] drivers is empty`,
		},
		{
			name: "bad value", make: func(r *rig) { r.conf.Set("raven", "sweep_interval", "often") },
			status: 1, says: `kuryr\.conf:\d+: \[raven\] sweep_interval: .*often`,
		},
		{
			name: "bad value of a driver's option", make: func(r *rig) { r.conf.Set("namespace_subnet", "topology", "round") },
			status: 1, says: `kuryr\.conf:\d+: \[namespace_subnet\] topology: .*round.*shared`,
		},
		{
			name: "unknown option, strictly", make: func(r *rig) { r.conf.Set("raven", "sweep_intervall", "5") },
			args: []string{"--strict", "run"}, status: 1,
			says: `kuryr\.conf:\d+: \[raven\] sweep_intervall: no such option; did you mean sweep_interval`,
		},
		{
			name: "unknown group, strictly", make: func(r *rig) { r.conf.Set("neutro", "x", "5") },
			args: []string{"--strict", "run"}, status: 1,
			says: `kuryr\.conf:\d+: \[neutro\]: no such group; did you mean \[neutron\]`,
		},
		{
			name: "no credentials", make: func(r *rig) { delete(r.conf["neutron"], "password") },
			status: 1, says: `\[neutron\] password not set`,
		},
	}
}

// script puts something executable in the place of a driver and enables it.
func (r *rig) script(name, text string) {
	r.t.Helper()
	_ = os.MkdirAll(r.path("plugins"), 0o700)
	if err := os.Chmod(r.write("plugins/raven-driver-"+name, text), 0o700); err != nil {
		r.t.Error(err)
	}
	r.conf.Set("raven", "drivers", name)
}

func TestMistakesEndInOneLineThatSaysWhatAndWhere(t *testing.T) {
	t.Parallel()
	each(t, daemonMistakes(), func(m mistake) string { return m.name }, func(t *testing.T, m mistake) {
		r := newRigWith(t, simkube.Options{TLS: true}, nil) // a token goes over TLS only
		r.conf.Set("kubernetes", "watch_retry_timeout", 3)
		m.make(r)
		args := m.args
		if args == nil {
			args = []string{"run"}
		}
		conf := r.configure()
		if m.waits {
			p := r.start()
			p.logged(`WARN.*the start waits for.*` + m.says)
			p.stop()
		} else {
			r.oneLine(r.raven(append(args, "--config-file", conf)...), m)
		}
		if writes := r.cloud.Stats().Writes; writes > 0 {
			t.Errorf("it wrote to the cloud %d times before", writes)
		}
		if m.args == nil && !strings.Contains(m.name, "port") {
			r.oneLine(r.raven("plan", "--config-file", conf), m)
		}
	})
}

// oneLine checks what a command said that failed. Lines of the log may stand before the error.
func (r *rig) oneLine(got result, m mistake) {
	r.t.Helper()
	if got.status != m.status {
		r.t.Errorf("the exit status is %d, wanted %d", got.status, m.status)
	}
	last := lastLine(got.errors)
	if !strings.HasPrefix(last, "raven: ") || !regexp.MustCompile(m.says).MatchString(last) {
		r.t.Errorf("the error does not match %s:\n%s", m.says, got.errors)
	}
	for line := range strings.Lines(got.errors) {
		if line = strings.TrimSpace(line); line != last && !regexp.MustCompile(`^(\d{4}-|time=)`).MatchString(line) {
			r.t.Errorf("a line is neither the error nor of the log: %s", line)
		}
	}
	if text := got.out + got.errors; strings.Contains(text, password) || strings.Contains(text, "Pica-pica") {
		r.t.Errorf("a secret was printed:\n%s", text)
	}
	if got.out != "" && m.status == 1 {
		r.t.Errorf("an error belongs to standard error: %s", got.out)
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	empty := r.write("empty.conf", "")
	for _, m := range []mistake{
		{name: "unknown command", args: []string{"fly"}, status: 64, says: `unknown command "fly"`},
		{
			name: "unknown flag", args: []string{"run", "--fast"}, status: 64,
			says: `unknown flag: --fast; see "raven run --help"`,
		},
		{
			name: "argument too many", args: []string{"plan", "x"}, status: 64,
			says: `unknown command "x" for "raven plan"|accepts no arg|see "raven plan --help"`,
		},
		{
			name: "bad output format", args: []string{"status", "-o", "xml"}, status: 64,
			says: `-o "xml": it must be one of table, json, yaml`,
		},
		{
			name: "bad --set", args: []string{"--set", "debug", "run"}, status: 64,
			says: `--set "debug": it must be GROUP\.NAME=VALUE`,
		},
		{name: "translate without a file", args: []string{"translate"}, status: 64, says: `-f is missing`},
		{
			name: "unknown option by --set", args: []string{"run", "--config-file", empty, "--set", "raven.nosuch=1"},
			status: 1, says: `\[raven\] nosuch: no such option`,
		},
		{
			name: "missing configuration file", args: []string{"run", "--config-file", r.path("nowhere.conf")}, status: 1,
			says: `nowhere\.conf: .*no such file`,
		},
		{
			name: "empty configuration file", args: []string{"run", "--config-file", empty}, status: 1,
			says: `\[neutron\] auth_url is not set`,
		},
		{
			name: "no configuration at all", args: []string{"run"}, status: 1,
			says: `\[neutron\] auth_url is not set`,
		},
		{
			name: "no daemon to ask", args: []string{"status", "--address", closedPort(t)}, status: 1,
			says: `127\.0\.0\.1:\d+.*connection refused.*raven run`,
		},
		{
			name: "unreadable manifest", args: []string{"translate", "--config-file", empty, "-f", r.path("nowhere.yaml")},
			status: 1, says: `nowhere\.yaml: no such file`,
		},
	} {
		t.Run(m.name, func(t *testing.T) {
			r.t = t
			r.oneLine(r.raven(append([]string{"--set", "health_server.port=0", "--set", "prometheus_exporter.port=0"},
				m.args...)...), m)
		})
	}
	r.t = t
}

func TestUnknownOptionsAndGroupsAreWarnings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.conf.Set("raven", "sweep_intervall", "5").Set("neutro", "x", "5").Set("DEFAULT", "debug", "true")
	p := r.start()
	p.logged(`WARN.*kuryr\.conf:\d+: \[raven\] sweep_intervall: no such option; did you mean sweep_interval`)
	p.logged(`WARN.*kuryr\.conf:\d+: \[neutro\]: no such group; did you mean \[neutron\]`)
	must(t, "rest", func() string { return r.amiss(p) })
	p.stop()
	if strings.Contains(p.log.String(), password) {
		t.Error("the password is in the log at debug level")
	}
	for _, command := range []string{"show", "validate"} {
		if got := r.raven("config", command, "--config-file", r.configure()); got.status != 0 ||
			strings.Contains(got.out+got.errors, password) {
			t.Errorf("raven config %s: status %d, or a secret:\n%s%s", command, got.status, got.out, got.errors)
		}
	}
}

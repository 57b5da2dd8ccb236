// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// password is what the cloud wants. It is nowhere but in the credential.
const password = "Corvus-corax-9471"

// world is a simulated cluster and cloud, which the machine shares the network with.
type world struct {
	kube  *simkube.API
	cloud *simcloud.Cloud
	port  int // of the health server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{kube: simkube.New(simkube.Options{}), cloud: simcloud.New(simcloud.Options{Password: password})}
	t.Cleanup(w.kube.Close)
	t.Cleanup(w.cloud.Close)
	if _, err := w.kube.Start(""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cloud.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

// create makes a namespace, and in it a pod that is scheduled.
func (w *world) create(t *testing.T, name string) {
	t.Helper()
	type object = map[string]any
	_, err := w.kube.Create(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name},
	})
	if err == nil {
		_, err = w.kube.Create(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"namespace": name, "name": name},
			"spec": object{"nodeName": "node-1", "containers": []any{object{"name": "c", "image": "i"}}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// conf is a kuryr.conf without the password.
func (w *world) conf(kubeconfig string, more ...string) string {
	return fmt.Sprintf(`[DEFAULT]
%s
[kubernetes]
kubeconfig = %s
[neutron]
auth_url = %s
username = %s
project_name = %s
user_domain_name = Default
project_domain_name = Default
[health_server]
port = %d
[prometheus_exporter]
port = 0
[raven]
drivers = namespace,pod
`, strings.Join(more, "\n"), kubeconfig, w.cloud.AuthURL(), simcloud.UserKuryr, simcloud.ProjectKuryr, w.port)
}

// dist is the folder of `make package`.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("RAVEN_E2E_DIST")
	if dir == "" {
		dir = "../../../dist"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func debianPackage(t *testing.T, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist(t), name+"_*_"+runtime.GOARCH+".deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("there must be one Debian package %s in %s, there are %v: run make package", name, dist(t), found)
	}
	return found[0]
}

// ready waits until the service is, and has done its work.
func (m *machine) ready(w *world) {
	m.t.Helper()
	m.eventually("raven.service is ready", func() error {
		if state := m.property("ActiveState"); state != "active" {
			return errors.New("it is " + state)
		}
		return nil
	})
	m.works(w)
}

// works says that a new namespace and pod come to the cloud.
func (m *machine) works(w *world) {
	m.t.Helper()
	name := fmt.Sprintf("n%d", time.Now().UnixNano())
	w.create(m.t, name)
	m.eventually("the pod has a port", func() error {
		if !slices.ContainsFunc(w.cloud.Ports(), func(p map[string]any) bool { return p["name"] == name }) {
			return errors.New("it has none")
		}
		return nil
	})
}

// TestPackage is the life of the Debian package on one machine.
func TestPackage(t *testing.T) {
	w := newWorld(t)
	m := newMachine(t)
	step := func(name string, f func(m *machine)) {
		t.Helper()
		if !t.Run(name, func(t *testing.T) { f(m.in(t)) }) {
			t.FailNow() // what follows stands on it
		}
	}
	step("installs", func(m *machine) { install(m, w) })
	step("starts and is ready", func(m *machine) { start(m, w) })
	step("is confined", confined)
	step("reloads", func(m *machine) { reload(m, w) })
	step("comes back after kill -9", func(m *machine) { crash(m, w) })
	step("hangs, and the watchdog brings it back", func(m *machine) { hang(m, w) })
	step("stops inside the bound with a driver that hangs", func(m *machine) { stop(m, w) })
	step("upgrades while it runs", func(m *machine) { upgrade(m, w) })
	m.reboot()
	step("starts with the machine", func(m *machine) { m.ready(w) })
	step("goes without a trace", purge)
}

func install(m *machine, w *world) {
	t := m.t
	m.write("/tmp/raven.deb", "644", "root", read(t, debianPackage(t, "raven")))
	t.Log(m.run("dpkg", "--install", "/tmp/raven.deb"))
	if out, status := m.status("raven", "service", "status"); status != 3 || out != "stopped" {
		t.Errorf("installed, not started: %q, exit status %d", out, status)
	}
	if got := m.run("stat", "-c", "%U:%G %a", "/etc/kuryr/kuryr.conf"); got != "root:raven 640" {
		t.Errorf("kuryr.conf is %s", got)
	}
	m.write("/etc/kuryr/kubeconfig", "640", "root:raven", string(w.kube.Kubeconfig()))
	m.write("/etc/kuryr/kuryr.conf", "640", "root:raven", w.conf("/etc/kuryr/kubeconfig"))
	m.write("/etc/credstore/raven.conf", "600", "root", "[neutron]\npassword = "+password+"\n")
	for range 2 {
		t.Log(m.run("raven", "service", "install"))
	}
}

func start(m *machine, w *world) {
	t := m.t
	began := time.Now()
	m.run("raven", "service", "start")
	t.Logf("start took %s; %s", time.Since(began).Round(time.Millisecond), m.run("raven", "service", "status"))
	if out := m.run("raven", "service", "status"); !strings.HasPrefix(out, "running (process "+m.pid()) {
		t.Errorf("the status is %q", out)
	}
	m.run("raven", "service", "start") // again
	m.works(w)
	log := m.run("raven", "service", "logs", "-n", "0")
	for _, want := range []string{"starting", "leading", "started"} {
		if !strings.Contains(log, want) {
			t.Errorf("the journal does not say %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, password) {
		t.Error("the password is in the journal")
	}
	if out := m.run("raven", "status"); !strings.Contains(out, "ready") {
		t.Errorf("raven status:\n%s", out)
	}
}

func confined(m *machine) {
	t := m.t
	status := m.run("cat", "/proc/"+m.pid()+"/status")
	for _, want := range []string{
		"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in:\n%s", want, status)
		}
	}
	owners := m.run("ps", "-o", "user=,comm=", "-C", "raven,raven-driver-namespace,raven-driver-pod", "--no-headers")
	if owners == "" || strings.Contains(owners, "root") {
		t.Errorf("it runs as:\n%s", owners)
	}
	for line := range strings.Lines(m.run("sh", "-c", "ps -eo ni=,args= | grep [r]aven-driver-")) {
		if !strings.HasPrefix(strings.TrimSpace(line), "5 ") {
			t.Errorf("a driver does not give way, nice is not 5: %s", line)
		}
	}
	for path, want := range map[string]string{
		"/run/raven": "raven 700", "/var/lib/raven": "raven 700", "/var/log/raven": "raven 750", "/etc/kuryr": "root 755",
	} {
		if got := m.run("stat", "-c", "%U %a", path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if mode := m.run("sh", "-c", "nsenter --target "+m.pid()+" --mount stat -c %a /root /home"); mode != "0\n0" {
		t.Errorf("for the service the modes of /root and /home are %q", mode)
	}
	// From inside: the machine is read-only, and the credential is the service's alone.
	for _, c := range []struct {
		test string
		want int
	}{
		{"-w /etc", 1},
		{"-w /usr", 1},
		{"-w /var/lib/raven", 0},
		{"-r /etc/kuryr/kuryr.conf", 0},
		{"-r /run/credentials/raven.service/raven.conf", 0},
		{"-r /etc/credstore/raven.conf", 1},
	} {
		_, status := m.status("sh", "-c",
			"nsenter --target "+m.pid()+" --mount --wd=/ setpriv --reuid raven --regid raven --clear-groups test "+c.test)
		if status != c.want {
			t.Errorf("as the service: test %s has status %d, want %d", c.test, status, c.want)
		}
	}
}

func reload(m *machine, w *world) {
	t := m.t
	before := m.pid()
	m.write("/etc/kuryr/kuryr.conf", "640", "root:raven",
		w.conf("/etc/kuryr/kubeconfig", "graceful_shutdown_timeout = 50"))
	m.run("systemctl", "reload", "raven")
	m.eventually("the change is logged, and it is ready again", func() error {
		if log := m.run("raven", "service", "logs"); !strings.Contains(log, "graceful_shutdown_timeout") ||
			m.property("SubState") != "running" {
			return errors.New("not yet")
		}
		return nil
	})
	if after := m.pid(); after != before {
		t.Errorf("process %s has become %s", before, after)
	}
	m.works(w)
}

func crash(m *machine, w *world) {
	t := m.t
	before := m.pid()
	m.run("kill", "-KILL", before)
	m.another(before)
	m.ready(w)
	if restarts := m.property("NRestarts"); restarts != "1" {
		t.Errorf("systemd counts %s restarts", restarts)
	}
	m.onlyOne()
}

func hang(m *machine, w *world) {
	t := m.t
	before, began := m.pid(), time.Now()
	m.run("kill", "-STOP", before)
	m.eventually("the watchdog has found it", func() error {
		if log := m.run("raven", "service", "logs", "-n", "0"); !strings.Contains(log, "Watchdog timeout") {
			return errors.New("it has not")
		}
		return nil
	})
	found := time.Since(began)
	m.another(before)
	m.ready(w)
	if log := m.run("raven", "service", "logs", "-n", "0"); !strings.Contains(log, "goroutine ") {
		t.Error("the journal does not show where the core stood")
	}
	t.Logf("found after %s, ready again after %s", found.Round(time.Second), time.Since(began).Round(time.Second))
	m.onlyOne()
}

// another waits until the core has another process.
func (m *machine) another(than string) {
	m.t.Helper()
	m.eventually("there is another process", func() error {
		if now := m.pid(); now == than || now == "0" {
			return errors.New("the process is " + now)
		}
		return nil
	})
}

// onlyOne says that no process outlived an earlier core.
func (m *machine) onlyOne() {
	m.t.Helper()
	if list := strings.Fields(m.run("pgrep", "--count", "--uid", "raven")); list[0] != "3" {
		m.t.Errorf("%s processes, want the core and two drivers:\n%s", list[0],
			m.run("pgrep", "--list-full", "--uid", "raven"))
	}
}

func stop(m *machine, w *world) {
	t := m.t
	m.run("pkill", "-STOP", "--uid", "raven", "raven-driver-po")
	began := time.Now()
	m.run("raven", "service", "stop")
	took := time.Since(began)
	t.Logf("stop took %s", took.Round(time.Millisecond))
	if took > 60*time.Second {
		t.Errorf("graceful_shutdown_timeout is 50 s, and it took %s", took)
	}
	if out, status := m.status("pgrep", "--list-full", "--uid", "raven"); status != 1 {
		t.Errorf("left are:\n%s", out)
	}
	if out, status := m.status("raven", "service", "status"); status != 3 {
		t.Errorf("stopped: %q, exit status %d", out, status)
	}
	m.run("raven", "service", "stop") // again
	m.run("raven", "service", "restart")
	m.ready(w)
}

func upgrade(m *machine, w *world) {
	t := m.t
	before := m.pid()
	t.Log(m.run("dpkg", "--install", "/tmp/raven.deb"))
	m.another(before)
	m.ready(w)
	if conf := m.run("cat", "/etc/kuryr/kuryr.conf"); !strings.Contains(conf, w.cloud.AuthURL()) {
		t.Error("the upgrade has changed kuryr.conf")
	}
}

func purge(m *machine) {
	t := m.t
	t.Log(m.run("raven", "service", "uninstall"))
	t.Log(m.run("dpkg", "--purge", "raven"))
	m.run("rm", "-r", "/etc/kuryr", "/etc/credstore/raven.conf") // what this test has put there
	m.gone()
	if out, _ := m.status("dpkg-query", "--show", "raven"); !strings.Contains(out, "no packages found") {
		t.Errorf("dpkg still knows it: %s", out)
	}
}

// gone says that nothing of Raven is left.
func (m *machine) gone() {
	m.t.Helper()
	for _, what := range [][]string{
		{"getent", "passwd", "raven"}, {"getent", "group", "raven"}, {"pgrep", "--uid", "raven"},
	} {
		if out, status := m.status(what...); status == 0 {
			m.t.Errorf("%s: %s", strings.Join(what, " "), out)
		}
	}
	if out := m.run("systemctl", "list-units", "--all", "--no-legend", "--plain", "raven*"); out != "" {
		m.t.Errorf("systemd still knows %s", out)
	}
	left := slices.DeleteFunc(m.traces(), func(path string) bool { return slices.Contains(m.before, path) })
	if len(left) > 0 {
		m.t.Errorf("left are:\n%s", strings.Join(left, "\n"))
	}
}

// TestWithoutPackage is `raven service` with programs that were copied to the machine.
func TestWithoutPackage(t *testing.T) {
	w := newWorld(t)
	m := newMachine(t)
	programs, err := filepath.Glob(filepath.Join(dist(t), "bin-"+runtime.GOARCH, "raven*"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("there are no programs in %s: run make package", dist(t))
	}
	for _, program := range programs {
		m.write("/opt/crow/"+filepath.Base(program), "755", "root", read(t, program))
	}
	const raven, conf = "/opt/crow/raven", "/etc/crow/my crow.conf"
	if out, status := m.status(raven, "service", "status"); status != 4 || !strings.Contains(out, "not installed") {
		t.Errorf("not installed: %q, exit status %d", out, status)
	}
	if out, status := m.status("setpriv", "--reuid=nobody", "--clear-groups", raven, "service",
		"install"); status != 1 || !strings.Contains(out, "needs root") {
		t.Errorf("without privileges: %q, exit status %d", out, status)
	}
	m.write("/root/kuryr.conf", "644", "root", "")
	if out, status := m.status(raven, "service", "install", "--config-file=/root/kuryr.conf"); status != 1 ||
		!strings.Contains(out, "cannot see") {
		t.Errorf("a file that the service cannot see: %q, exit status %d", out, status)
	}
	m.run("rm", "/root/kuryr.conf")
	m.write("/etc/crow/kubeconfig", "644", "root", string(w.kube.Kubeconfig()))
	m.write(conf, "644", "root", w.conf("/etc/crow/kubeconfig"))
	m.write("/etc/credstore/raven.conf", "600", "root", "[neutron]\npassword = wrong\n")
	t.Log(m.run(raven, "service", "install", "--config-file="+conf))

	out, status := m.status(raven, "service", "start")
	if status != 1 || !strings.Contains(out, "raven service logs") {
		t.Errorf("with a wrong password: %q, exit status %d", out, status)
	}
	if log := m.run(raven, "service", "logs", "--lines=20"); !strings.Contains(log, "401") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	m.write("/etc/credstore/raven.conf", "600", "root", "[neutron]\npassword = "+password+"\n")
	m.ready(w) // systemd tries again by itself
	t.Log(m.run(raven, "service", "status"))
	if out := m.run(raven, "service", "install", "--config-file="+conf); !strings.Contains(out, "there already") {
		t.Errorf("again: %s", out)
	}
	t.Log(m.run(raven, "service", "install", "--config-file="+conf, "--set=DEFAULT.debug=true"))
	before := m.pid()
	m.run(raven, "service", "restart")
	m.another(before)
	m.ready(w)
	if command := m.property("ExecStart"); !strings.Contains(command, "--set=DEFAULT.debug=true") {
		t.Errorf("the command is %s", command)
	}

	encrypted(t, m, w, raven)
	for range 2 {
		t.Log(m.run(raven, "service", "uninstall"))
	}
	m.run("rm", "-r", "/opt/crow", "/etc/crow", "/etc/credstore.encrypted", "/etc/systemd/system/raven.service.d")
	m.run("systemctl", "daemon-reload")
	m.gone()
}

// encrypted puts an encrypted credential in the place of the other.
func encrypted(t *testing.T, m *machine, w *world, raven string) {
	t.Helper()
	m.run("mkdir", "-p", "/etc/credstore.encrypted")
	m.run("systemd-creds", "encrypt", "--name=raven.conf", "/etc/credstore/raven.conf",
		"/etc/credstore.encrypted/raven.conf")
	m.run("rm", "/etc/credstore/raven.conf")
	m.write("/etc/systemd/system/raven.service.d/secret.conf", "644", "root",
		"[Service]\nLoadCredentialEncrypted=raven.conf\n")
	m.run("systemctl", "daemon-reload")
	m.run(raven, "service", "restart")
	m.ready(w)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

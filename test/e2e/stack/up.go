// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"text/template"
	"time"
)

// files are the configurations and the patches that the servers get.
//
//go:embed files
var files embed.FS

// password is every password of the stack. All listens on loopback only.
const password = "raven-e2e"

// Options say how a stack is brought up.
type Options struct {
	Dir          string    // where it stands; below 40 bytes, for the sockets in it
	ControlPlane string    // the program of test/e2e/kubernetes
	OpenVSwitch  string    // the folder of machine.OpenVSwitch
	Tools        Tools     // what nodes are made of
	Program      string    // raven-e2e, for what the stack runs of it
	Cache        string    // a folder that keeps what is worth keeping: the migrated databases
	Progress     io.Writer // gets a line for each step
}

// Up brings a stack up in a vacant folder (see Vacant), and returns when all of it is ready. What it started before
// it fails it leaves for Down, with the logs. What an earlier stack left in artifacts is in artifacts.1 then, and
// what was there is gone.
func Up(ctx context.Context, o Options) (*Stack, error) {
	if err := Vacant(o.Dir); err != nil {
		return nil, err
	}
	b := newBuilder(o)
	if err := b.claim(); err != nil {
		return nil, err
	}
	defer b.release()
	if err := b.layOut(); err != nil {
		return nil, err
	}
	b.addAll()
	// From here on Down knows of all that there may be.
	if err := errors.Join(b.save(), b.err); err != nil {
		return nil, err
	}
	if err := runSteps(ctx, b.steps, o.Progress); err != nil {
		return nil, err
	}
	return b.Stack, b.save()
}

// builder gathers the components of a stack and the steps that bring it up.
type builder struct {
	*Stack
	Options
	steps []step
	ports map[string]int
	holds []io.Closer // of the ports: see hold
	// The first error of writing files; later calls do nothing.
	err error

	external, management string // ids of networks, known once Neutron runs
}

func newBuilder(o Options) *builder {
	prefix := fmt.Sprintf("rv%.4x", sha256.Sum256([]byte(o.Dir)))[:6]
	s := &Stack{dir: o.Dir, locks: map[string]*lock{}}
	s.state = state{
		Tools: o.Tools, OpenVSwitch: o.OpenVSwitch,
		Kubeconfig: s.path("kubeconfig"), Clouds: s.path("clouds.yaml"), Artifacts: s.path("artifacts"), Started: time.Now(),
		Network: Network{
			Bridge: "br-int", Provider: "br-ex", Namespace: prefix + "-switch", Control: prefix + "-control", Prefix: prefix,
			Chassis: "node-1", Kubeconfig: s.path("pki", "hosts.kubeconfig"),
			OVS: "unix:" + s.path("ovs", "db.sock"), OVNNorth: "unix:" + s.path("ovn", "nb.sock"),
			OVNSouth: "unix:" + s.path("ovn", "sb.sock"),
		},
	}
	return &builder{Stack: s, Options: o}
}

// layOut makes the folders and chooses the ports.
func (b *builder) layOut() error {
	if err := b.setAside(); err != nil {
		return err
	}
	for _, dir := range []string{
		".", "artifacts", "artifacts/log", "pid", "etc", "etc/policy.d", "pki", "mysql", "ovn", "ovs", "rabbit", "octavia",
		"py", "lock", "keystone/fernet", "keystone/credential",
	} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "sock"} { // for servers that give up root
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			return err
		}
		if err := os.Chmod(b.path(dir), 0o1777); err != nil {
			return err
		}
	}
	return b.choosePorts()
}

func (b *builder) addAll() {
	b.describeNodes()
	b.kubernetes()
	b.ovn()
	b.nodes()
	b.databases()
	b.keystone()
	b.neutron()
	b.octavia()
}

// component adds a server, and the step that starts it. also names steps that are no servers.
func (b *builder) component(c Component, also ...string) {
	c.Log = b.path("artifacts", "log", c.Name+".log")
	b.state.Components = append(b.state.Components, c)
	b.step(c.Name, append(also, c.After...), func(ctx context.Context) error { return b.Start(ctx, c.Name) })
}

func (b *builder) step(name string, after []string, do func(context.Context) error) {
	b.steps = append(b.steps, step{name: name, after: after, do: do})
}

// write makes a file of a template in files; the template sees the builder.
func (b *builder) write(source, target string) {
	if b.err != nil {
		return
	}
	b.err = b.render(source, target)
}

// copyFile makes a file of files as it is.
func (b *builder) copyFile(source, target string) {
	if b.err != nil {
		return
	}
	content, err := files.ReadFile("files/" + source)
	if err == nil {
		err = os.WriteFile(b.path(target), content, 0o644)
	}
	b.err = err
}

// writeFor makes a file of a template in files that sees data.
func (b *builder) writeFor(data any, source, target string) {
	if b.err == nil {
		b.err = b.renderFor(data, source, target)
	}
}

func (b *builder) render(source, target string) error { return b.renderFor(b, source, b.path(target)) }

func (b *builder) renderFor(data any, source, target string) error {
	t, err := template.New(path.Base(source)).Option("missingkey=error").ParseFS(files, "files/"+source)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(file, data), file.Close())
}

// What the templates say.

// Path is a path below the stack's folder.
func (b *builder) Path(elem ...string) string { return b.path(elem...) }

// Port is a chosen port.
func (b *builder) Port(name string) string {
	port := b.ports[name]
	if port == 0 {
		panic("no port was chosen for " + name)
	}
	return strconv.Itoa(port)
}

// Password is every password of the stack.
func (b *builder) Password() string { return password }

// Net is the stack's network.
func (b *builder) Net() Network { return b.state.Network }

// URL is the stack's endpoints.
func (b *builder) URL() Endpoints { return b.state.Endpoints }

// Database is the URL of a database for SQLAlchemy.
func (b *builder) Database(name string) string {
	return "mysql+pymysql://root@localhost/" + name + "?unix_socket=" + b.path("sock", "mysql.sock") + "&charset=utf8"
}

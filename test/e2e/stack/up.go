package stack

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"text/template"
	"time"
)

// files are the configurations and the mends that the servers get.
//
//go:embed files
var files embed.FS

// password is every password of the stack. All listens on loopback only.
const password = "raven-e2e"

// ErrStands is the error of Up where a stack stands already.
var ErrStands = errors.New("a stack stands")

// Options say how a stack is brought up.
type Options struct {
	Dir          string    // where it stands; below 40 bytes, for the sockets in it
	ControlPlane string    // the program of test/e2e/kubernetes
	Cache        string    // a folder that keeps what is worth keeping: the migrated databases
	Progress     io.Writer // gets a line for each step

	shared string // the folder that octavia-lib insists on; tests have another
}

// Up brings a stack up in an empty or missing folder, and returns when all of it is ready. What it started before it fails
// it leaves for Down, with the logs.
func Up(ctx context.Context, o Options) (*Stack, error) {
	o.shared = sharedSockets
	if len(o.Dir) > 40 {
		return nil, fmt.Errorf("the folder's name %s is too long for the sockets in it: 40 bytes at most", o.Dir)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "stack.json")); err == nil {
		return nil, fmt.Errorf("%w in %s: make e2e-down takes it down", ErrStands, o.Dir)
	}
	// What an earlier stack left for people to read goes when the next one comes.
	if err := os.RemoveAll(filepath.Join(o.Dir, "artifacts")); err != nil {
		return nil, err
	}
	b, err := newBuilder(o)
	if err != nil {
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
	// The first error of writing files; later calls do nothing.
	err error

	external, management string // ids of networks, known once Neutron runs
}

func newBuilder(o Options) (*builder, error) {
	prefix := fmt.Sprintf("rv%.4x", sha256.Sum256([]byte(o.Dir)))[:6]
	s := &Stack{dir: o.Dir}
	s.state = state{
		Kubeconfig: s.path("kubeconfig"), Clouds: s.path("clouds.yaml"), Artifacts: s.path("artifacts"), Started: time.Now(),
		Network: Network{
			Bridge: "br-int", Provider: "br-ex", Namespace: prefix + "-switch", Prefix: prefix, Chassis: "node-1",
			OVS: "unix:" + s.path("ovs", "db.sock"), OVNNorth: "unix:" + s.path("ovn", "nb.sock"), OVNSouth: "unix:" + s.path("ovn", "sb.sock"),
		},
	}
	for _, dir := range []string{".", "artifacts", "artifacts/log", "pid", "etc", "etc/policy.d", "pki", "mysql", "ovn", "ovs", "rabbit", "octavia", "py", "lock", "keystone/fernet", "keystone/credential"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"tmp", "sock"} { // for servers that give up root
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return nil, err
		}
		if err := os.Chmod(s.path(dir), 0o1777); err != nil {
			return nil, err
		}
	}
	b := &builder{Stack: s, Options: o}
	b.locks = map[string]*lock{}
	return b, b.choosePorts()
}

// choosePorts takes ports that are free now. All are held until the last is chosen, so that they differ.
func (b *builder) choosePorts() error {
	b.ports = map[string]int{}
	for _, name := range []string{
		"etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler", "kwok",
		"memcached", "keystone", "neutron", "octavia", "epmd", "rabbitmq", "rabbitmq-dist",
	} {
		listener, err := listen()
		if err != nil {
			return fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close()
		b.ports[name] = listener.Addr().(*net.TCPAddr).Port
	}
	b.state.Endpoints = Endpoints{
		Kubernetes: "https://127.0.0.1:" + b.Port("apiserver"), Etcd: "http://127.0.0.1:" + b.Port("etcd"),
		Keystone: "http://127.0.0.1:" + b.Port("keystone") + "/v3",
		Neutron:  "http://127.0.0.1:" + b.Port("neutron"), Octavia: "http://127.0.0.1:" + b.Port("octavia"),
	}
	return nil
}

// lowestPort is where ports are looked for, up to those that the kernel gives to connections.
const lowestPort = 12000

// FreePort is a port of loopback that nobody listens on, and that no connection gets by itself (see listen): a server may go away and
// come back to it.
func FreePort() (int, error) {
	listener, err := listen()
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// listen takes a port that no connection gets by itself: while a server is away, those who call it could be given its port for their own
// end, and it could not be started again.
func listen() (net.Listener, error) {
	first := 0
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(content), &first)
	}
	config := &net.ListenConfig{}
	for range 100 {
		if first <= lowestPort {
			break
		}
		listener, err := config.Listen(context.Background(), "tcp4", "127.0.0.1:"+strconv.Itoa(lowestPort+rand.IntN(first-lowestPort)))
		if err == nil {
			return listener, nil
		}
	}
	return config.Listen(context.Background(), "tcp4", "127.0.0.1:0")
}

func (b *builder) addAll() {
	b.kubernetes()
	b.ovn()
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

func (b *builder) render(source, target string) error {
	t, err := template.New(source).Option("missingkey=error").ParseFS(files, "files/"+source)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(b.path(target), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(file, b), file.Close())
}

// save writes stack.json.
func (b *builder) save() error {
	content, err := json.MarshalIndent(b.state, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.path("stack.json"), content, 0o644)
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

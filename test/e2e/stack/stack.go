// SPDX-License-Identifier: Apache-2.0

// Package stack is a real Kubernetes control plane and a real OpenStack network on this machine's loopback, for
// tests: it starts them, and lets a test kill and start any part of them. It must never touch what it did not start:
// processes are known by recorded id and start time, and all files, sockets and names carry the stack's own folder or
// mark.
package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// DefaultDir is where a stack stands when nothing else is said. Short, because a path of a Unix socket has 107 bytes.
const DefaultDir = "/tmp/raven-e2e"

// The names of the components.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	MariaDB           = "mariadb"
	Memcached         = "memcached"
	Keystone          = "keystone"
	NeutronServer     = "neutron-server"
	NorthDB           = "ovsdb-nb"
	SouthDB           = "ovsdb-sb"
	Northd            = "ovn-northd"
	SwitchDB          = "ovsdb-vs"
	Vswitchd          = "ovs-vswitchd"
	OVNController     = "ovn-controller"
	Epmd              = "epmd"
	RabbitMQ          = "rabbitmq"
	OctaviaAgent      = "octavia-driver-agent"
	OctaviaAPI        = "octavia-api"
	OctaviaWorker     = "octavia-worker"
	ControlRelay      = "control-plane-relay"
)

// The clouds of clouds.yaml.
const (
	AdminCloud   = "e2e-admin"   // the administrator
	Cloud        = "e2e"         // a member of a project of his own, with load-balancer_member: what Raven runs as
	AppCredCloud = "e2e-appcred" // the same user by application credential
	BindingCloud = "e2e-binding" // the administrator in that project, who may set binding:host_id
)

// Component is one server of the stack. It can be started, stopped and killed by name.
type Component struct {
	Name  string   `json:"name"`
	After []string `json:"after,omitempty"` // what it needs to become ready
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"`
	Dir   string   `json:"dir,omitempty"`
	Log   string   `json:"log"`             // the file of its standard output and error
	Clean []string `json:"clean,omitempty"` // paths that a killed one leaves behind and a new one stumbles over
	Ready Probe    `json:"ready"`
	Conf  string   `json:"conf,omitempty"` // an INI file that is read last, and empty at first: see Override
	// commands that a start ends with: what is lost with the process before
	Then     [][]string `json:"then,omitempty"`
	OnDemand bool       `json:"on_demand,omitempty"` // Up does not start it
}

// Network is what a test needs to give Neutron ports to network namespaces, as a CNI plugin does. A port is to have
// its binding:host_id (an administrator's to set) before its interface is plugged: Neutron waits 5 s for one that
// comes up unbound, and then leaves it DOWN for good (measured, 21.0.0; the packets flow all the same).
type Network struct {
	Bridge   string `json:"bridge"`   // the integration bridge, userspace datapath
	Provider string `json:"provider"` // the bridge of the external network's physnet1
	// the network namespace that the bridges stand in: links for them go there (ip -n NAMESPACE …)
	Namespace string `json:"namespace"`
	// the network namespace of the control plane's host: the API server, which listens on the machine's loopback, is
	// reached from there at APIServer, and reaches from there what it calls in the cluster
	Control   string `json:"control"`
	APIServer string `json:"api_server"` // https://ADDRESS:PORT on the network that nodes are on
	// the path of a kubeconfig with all rights that is good in Control and on nodes
	Kubeconfig string `json:"kubeconfig"`
	OVS        string `json:"ovs"`       // Open vSwitch's database, unix:PATH, for ovs-vsctl --db
	OVNNorth   string `json:"ovn_north"` // unix:PATH, for ovn-nbctl --db
	OVNSouth   string `json:"ovn_south"` // unix:PATH, for ovn-sbctl --db
	// the name of the machine in OVN, of the Kubernetes node, and for binding:host_id
	Chassis      string `json:"chassis"`
	External     string `json:"external"`      // the id of the external network
	ExternalCIDR string `json:"external_cidr"` // its IPv4 subnet
	// for names of links and namespaces on the machine: what begins so, the stack takes down; 6 bytes
	Prefix string `json:"prefix"`
}

// Endpoints are the addresses of the APIs.
type Endpoints struct {
	Kubernetes string `json:"kubernetes"` // https, needs the kubeconfig's certificates
	Etcd       string `json:"etcd"`       // plain HTTP, with the JSON gateway at /v3/
	Keystone   string `json:"keystone"`   // with /v3
	Neutron    string `json:"neutron"`
	Octavia    string `json:"octavia"`
}

// state is stack.json.
type state struct {
	Components []Component `json:"components"`
	Kubeconfig string      `json:"kubeconfig"`
	Clouds     string      `json:"clouds"`
	Artifacts  string      `json:"artifacts"`
	Network    Network     `json:"network"`
	Endpoints  Endpoints   `json:"endpoints"`
	Started    time.Time   `json:"started"`
	Nodes      []Node      `json:"nodes"`
	Tools      Tools       `json:"tools"`
	// the folder of machine.OpenVSwitch
	OpenVSwitch string `json:"open_vswitch"`
}

// Stack is a stack that stands. Its methods may be called from many goroutines; two that concern one component wait for
// each other.
type Stack struct {
	dir   string
	state state

	mu    sync.Mutex
	locks map[string]*lock
	wait  sync.WaitGroup // for the processes that this program started
}

// Open gives the stack that stands in dir.
func Open(dir string) (*Stack, error) {
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no stack stands in %s: %s brings one up", dir, Make("e2e-up", dir))
	}
	if err != nil {
		return nil, fmt.Errorf("opening the stack: %w", err)
	}
	s := &Stack{dir: dir, locks: map[string]*lock{}}
	if err := json.Unmarshal(content, &s.state); err != nil {
		return nil, fmt.Errorf("opening the stack in %s: %w", dir, err)
	}
	return s, nil
}

// Dir is the folder that holds everything of the stack.
func (s *Stack) Dir() string { return s.dir }

// Kubeconfig is the path of a kubeconfig with all rights.
func (s *Stack) Kubeconfig() string { return s.state.Kubeconfig }

// Clouds is the path of clouds.yaml; it has the clouds AdminCloud, Cloud, AppCredCloud and BindingCloud.
func (s *Stack) Clouds() string { return s.state.Clouds }

// Artifacts is the folder for what a developer wants to see after a failure. The servers' logs are in log/ there. It
// outlives the stack.
func (s *Stack) Artifacts() string { return s.state.Artifacts }

// Network says how the machine's network namespaces get into Neutron's networks.
func (s *Stack) Network() Network { return s.state.Network }

// Endpoints says where the APIs answer.
func (s *Stack) Endpoints() Endpoints { return s.state.Endpoints }

// Components lists the servers in the order in which they can be started.
func (s *Stack) Components() []Component { return slices.Clone(s.state.Components) }

// Component gives one server.
func (s *Stack) Component(name string) (Component, error) {
	for _, c := range s.state.Components {
		if c.Name == name {
			return c, nil
		}
	}
	return Component{}, fmt.Errorf("the stack has no component %q", name)
}

// lock is held by a call that concerns one component.
type lock = sync.Mutex

// lock makes the calls that concern one component wait for each other.
func (s *Stack) lock(name string) (unlock func()) {
	s.mu.Lock()
	l := s.locks[name]
	if l == nil {
		l = &lock{}
		s.locks[name] = l
	}
	s.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// Running says whether a component's process lives.
func (s *Stack) Running(name string) bool { return s.process(name).alive() }

// Start starts a component and waits until it is ready. One that runs is waited for only. The error shows the end of
// the component's log.
func (s *Stack) Start(ctx context.Context, name string) error {
	c, err := s.Component(name)
	if err != nil {
		return err
	}
	defer s.lock(name)()
	if !s.process(name).alive() {
		if err := s.spawn(c); err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
	}
	if err := s.awaitReady(ctx, c); err != nil {
		return err
	}
	for _, argv := range c.Then {
		if _, err := s.Run(ctx, argv...); err != nil {
			return fmt.Errorf("after the start of %s: %w", name, err)
		}
	}
	return nil
}

// Kill ends a component and its children with SIGKILL, and waits until they are gone. One that is gone is no error.
func (s *Stack) Kill(ctx context.Context, name string) error {
	if _, err := s.Component(name); err != nil {
		return err
	}
	defer s.lock(name)()
	if err := s.process(name).kill(ctx); err != nil {
		return fmt.Errorf("killing %s: %w", name, err)
	}
	return nil
}

// Stop asks a component to end with SIGTERM, and waits until it is gone. What has not ended when patience is over is
// killed, and what outlived its parent too.
func (s *Stack) Stop(ctx context.Context, name string, patience time.Duration) error {
	if _, err := s.Component(name); err != nil {
		return err
	}
	defer s.lock(name)()
	if err := s.process(name).stop(ctx, patience); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	return nil
}

// Restart kills a component with SIGKILL, starts it, and waits until it is ready.
func (s *Stack) Restart(ctx context.Context, name string) error {
	if err := s.Kill(ctx, name); err != nil {
		return err
	}
	return s.Start(ctx, name)
}

// Override sets options of a component that has an oslo.config file (keystone, neutron-server, octavia-api and
// -worker): ini is read after the file that the stack wrote, and takes effect with the next start. An empty one
// undoes it.
//
//	stack.Override(stack.Keystone, "[token]\nexpiration = 20\n")
func (s *Stack) Override(name, ini string) error {
	c, err := s.Component(name)
	if err != nil {
		return err
	}
	if c.Conf == "" {
		return fmt.Errorf("%s has no file of options", name)
	}
	return os.WriteFile(c.Conf, []byte(ini), 0o600)
}

// PID is the process id of a component, or 0.
func (s *Stack) PID(name string) int {
	if p := s.process(name); p.alive() {
		return p.pid
	}
	return 0
}

// CPU is the processor time that a component and its children have used since it was started.
func (s *Stack) CPU(name string) (time.Duration, error) {
	if _, err := s.Component(name); err != nil {
		return 0, err
	}
	return s.process(name).cpu()
}

// Wait waits for the end of the processes that this program started. Call it after they were stopped or killed.
func (s *Stack) Wait() { s.wait.Wait() }

func (s *Stack) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

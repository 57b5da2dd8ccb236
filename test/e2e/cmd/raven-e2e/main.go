// SPDX-License-Identifier: Apache-2.0

// Command raven-e2e brings a stack of real servers up and down, and runs the suite on it.
//
//	raven-e2e [flags] run [PATTERN]      up, the suite's scenarios that match, a table, down
//	raven-e2e [flags] up                 up; prints how to reach it
//	raven-e2e [flags] test [PATTERN]     the scenarios on the stack that stands
//	raven-e2e [flags] down               down
//	raven-e2e [flags] status             the servers, their processor time and what they lack
//	raven-e2e [flags] kill|start SERVER  kill -9, or start and wait until it is ready
//	raven-e2e [flags] forget             compacts etcd and starts the API server anew: watches of before get 410
//	raven-e2e able                       whether a stack can stand on this machine, and why not
//	raven-e2e relay                      a component of a stack; see stack.Relay
//	raven-e2e prepare                    installs the packages, fetches and builds the programs
//
// It exits with 0 if something was shown and nothing failed; 1 if a scenario failed, or a server
// of the stack ended by itself; 2 if the stack did not come up or go down, the run was interrupted, no scenario ran or
// every one was skipped, or the call is wrong; 4 if this machine is not able to.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kuryr/raven/test/e2e/machine"
	"github.com/kuryr/raven/test/e2e/stack"
)

const (
	statusFailed  = 1
	statusHarness = 2
	statusUnable  = 4
)

// downBound bounds taking down, also after an interrupt.
const downBound = 2 * time.Minute

type options struct {
	dir, repository string
	full            bool
	upBound         time.Duration
	out, complaints io.Writer
}

func main() {
	os.Exit(command())
}

func command() int {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	o := options{out: os.Stdout, complaints: os.Stderr}
	flag.StringVar(&o.dir, "dir", stack.DefaultDir, "the `folder` of the stack")
	flag.StringVar(&o.repository, "repository", ".", "the root of the repository")
	flag.BoolVar(&o.full, "full", false, "the sizes of a night, not of an hour")
	flag.DurationVar(&o.upBound, "up-bound", 10*time.Minute, "how long the servers may take to become ready")
	flag.Parse()
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return o.harness(err)
	}
	arg := flag.Arg(1)
	switch flag.Arg(0) {
	case "run":
		return o.run(ctx, arg)
	case "up":
		if status := o.up(ctx); status != 0 {
			return status
		}
		return o.tell()
	case "test":
		return o.test(ctx, arg)
	case "down":
		return o.harness(o.down(ctx))
	case "status":
		return o.status(ctx)
	case "kill", "start":
		return o.control(ctx, flag.Arg(0), arg)
	case "forget":
		return o.forget(ctx)
	case "relay":
		return o.relay(ctx, flag.Args()[1:])
	case "able":
		if err := machine.Able(); err != nil {
			fmt.Fprintln(o.out, err)
			return statusUnable
		}
		return 0
	case "prepare":
		how, err := o.prepare(ctx)
		if err == nil {
			_, err = machine.E2ETest(ctx, o.modules(), how.Cache, o.out)
		}
		if err == nil {
			_, err = machine.Cyclonus(ctx, o.modules(), how.Cache, o.out)
		}
		if err == nil {
			_, err = machine.Helm(ctx, filepath.Dir(o.modules()), how.Cache, o.out)
		}
		return o.harness(err)
	}
	fmt.Fprintln(o.complaints, "raven-e2e: say run, up, test, down, status, kill, start, forget, able or prepare")
	return statusHarness
}

// endings are the signals that end a run in order, with all servers taken down: of a terminal that is closed too.
func endings() []os.Signal { return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} }

// relay is a component of a stack.
func (o options) relay(ctx context.Context, args []string) int {
	var r stack.Relay
	flags := flag.NewFlagSet("relay", flag.ExitOnError)
	flags.StringVar(&r.Space, "space", "", "the network `namespace` of the control plane's host")
	flags.StringVar(&r.Listen, "listen", "", "an `address` in it that leads to the API server")
	flags.StringVar(&r.To, "to", "", "the `address` of the API server")
	flags.StringVar(&r.Egress, "egress", "", "the `path` of a socket that leads into the namespace by HTTP CONNECT")
	_ = flags.Parse(args) // exits
	return o.harness(r.Serve(ctx))
}

// errUnable says that no stack can stand on this machine.
var errUnable = errors.New("this machine is not able to")

// harness shows an error that is not Raven's.
func (o options) harness(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(o.complaints, "raven-e2e:", err)
	if errors.Is(err, errUnable) {
		return statusUnable
	}
	return statusHarness
}

// run is all of it. What fails is shown before the stack goes down; its artifacts stay.
func (o options) run(ctx context.Context, pattern string) int {
	if status := o.up(ctx); status != 0 {
		return status
	}
	status := o.test(ctx, pattern)
	if err := o.down(ctx); err != nil {
		return max(status, o.harness(err))
	}
	return status
}

// prepare installs packages and fetches and builds programs at once: one mostly waits for the disk and the network. It
// gives what stack.Up is to know of that.
func (o options) prepare(ctx context.Context) (stack.Options, error) {
	up := stack.Options{Dir: o.dir, Progress: o.out}
	var err error
	if up.Program, err = os.Executable(); err != nil {
		return up, err
	}
	if err := machine.Able(); err != nil {
		return up, fmt.Errorf("%w: %w", errUnable, err)
	}
	if up.Cache, err = machine.CacheDir(); err != nil {
		return up, err
	}
	modules := o.modules()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := machine.Install(ctx, o.out); err != nil {
			return err
		}
		var err error
		up.OpenVSwitch, err = machine.OpenVSwitch(ctx, up.Cache, o.out)
		return err
	})
	group.Go(func() error { // one after the other: each takes all processors
		var err error
		if up.ControlPlane, err = machine.ControlPlane(ctx, modules, up.Cache, o.out); err != nil {
			return err
		}
		tools, err := machine.Nodes(ctx, modules, up.Cache, o.out)
		up.Tools = stack.Tools(tools)
		return err
	})
	return up, group.Wait()
}

// modules is the folder of the modules that pin what is built.
func (o options) modules() string { return filepath.Join(o.repository, "test", "e2e") }

// up brings the stack up. Where it fails, what came up is taken away again, and what stood there before is left alone.
func (o options) up(ctx context.Context) int {
	// Before the minutes of what follows.
	if err := stack.Vacant(o.dir); err != nil {
		return o.harness(err)
	}
	how, err := o.prepare(ctx)
	if err != nil {
		return o.harness(err)
	}
	bounded, cancel := context.WithTimeout(ctx, o.upBound)
	defer cancel()
	began := time.Now()
	_, err = stack.Up(bounded, how)
	switch {
	case errors.Is(err, stack.ErrStands), errors.Is(err, stack.ErrOccupied): // somebody was faster
		return o.harness(err)
	case err != nil:
		status := o.harness(err)
		fmt.Fprintln(o.complaints, "raven-e2e: the servers' logs are in", filepath.Join(o.dir, "artifacts", "log"))
		return max(status, o.harness(o.down(ctx)))
	}
	fmt.Fprintf(o.out, "the stack stands after %.1f s\n", time.Since(began).Seconds())
	return 0
}

func (o options) down(ctx context.Context) error {
	// An interrupt must not leave servers behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downBound)
	defer cancel()
	return stack.Down(ctx, o.dir)
}

func (o options) control(ctx context.Context, verb, name string) int {
	s, err := stack.Open(o.dir)
	if err != nil {
		return o.harness(err)
	}
	if verb == "kill" {
		return o.harness(s.Kill(ctx, name))
	}
	ctx, cancel := context.WithTimeout(ctx, o.upBound)
	defer cancel()
	return o.harness(s.Start(ctx, name))
}

func (o options) forget(ctx context.Context) int {
	s, err := stack.Open(o.dir)
	if err != nil {
		return o.harness(err)
	}
	if err := s.Compact(ctx); err != nil {
		return o.harness(err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.upBound)
	defer cancel()
	return o.harness(s.Restart(ctx, stack.APIServer))
}

func (o options) status(ctx context.Context) int {
	s, err := stack.Open(o.dir)
	if err != nil {
		return o.harness(err)
	}
	status := 0
	for _, c := range s.Components() {
		state := "ready"
		if c.OnDemand && !s.Running(c.Name) {
			state = "not started: real nodes are up in scenarios that ask for them"
		} else if err := s.Ready(ctx, c.Name); err != nil {
			state, status = err.Error(), statusHarness
		}
		used, _ := s.CPU(c.Name) // one that does not run says so in its state
		fmt.Fprintf(o.out, "%-24s %7d %7.1f s  %s\n", c.Name, s.PID(c.Name), used.Seconds(), state)
	}
	return status
}

// tell prints how to explore a stack.
func (o options) tell() int {
	s, err := stack.Open(o.dir)
	if err != nil {
		return o.harness(err)
	}
	net := s.Network()
	fmt.Fprintf(o.out, `
  export KUBECONFIG=%s
  export OS_CLIENT_CONFIG_FILE=%s OS_CLOUD=%s     # or %s, %s

Try:
  kubectl get nodes                                # one, played by kwok: a pod runs once it has its port; needs kubectl
  openstack network list                           # with python3-openstackclient installed
  ovn-nbctl --db=%s show
  ovs-vsctl --db=%s show
  ip netns exec %s ip link                # where Open vSwitch's bridges are
  bin/raven-e2e -dir %[9]s kill neutron-server; bin/raven-e2e -dir %[9]s start neutron-server
  %s E2E=<pattern>    # scenarios on this stack
  %s

logs: %s
`, s.Kubeconfig(), s.Clouds(), stack.AdminCloud, stack.Cloud, stack.AppCredCloud, net.OVNNorth, net.OVS,
		net.Namespace, o.dir,
		stack.Make("e2e-test", o.dir), stack.Make("e2e-down", o.dir), filepath.Join(s.Artifacts(), "log"))
	return 0
}

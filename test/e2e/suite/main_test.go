// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuryr/raven/test/e2e/stack"
)

// patience is how long anything may take that a scenario waits for. It is generous: what fails is what never comes.
// RAVEN_E2E_PATIENCE makes it longer where others work on the machine.
var patience = 4 * time.Minute

// world is the stack that the scenarios run on.
var world struct {
	kubeconfig, clouds      string
	ovnNB, ovsDB, bridge    string
	external, externalCIDR  string // the external network's name, and its IPv4 subnet
	provider                string // the bridge that leads there
	switchSpace             string // the network namespace that Open vSwitch stands in, "" for the machine's
	prefix                  string // of names of links and network namespaces
	bin, artifacts, scratch string
	full                    bool
	controls                controls     // nil where nobody can stop servers
	stack                   *stack.Stack // nil where it is not the harness's

	config       *rest.Config
	kube         dynamic.Interface
	cloud, admin *cloud
	accountFile  string // kubeconfig of the account that Raven gets

	standing *site // the raven that most scenarios share
	running  *site // the site whose raven runs: two would write to the same annotations
	last     *site // the one whose raven ran last
}

// controls stop and start the servers of a stack.
type controls interface {
	// Kill is kill -9, and returns when the server is gone.
	Kill(ctx context.Context, component string) error
	// Start starts it, and returns when it answers.
	Start(ctx context.Context, component string) error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if dialled, status := peer(); dialled {
		return status
	}
	ctx := context.Background()
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: the stack cannot be used:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(world.scratch) }()
	status := m.Run()
	if err := tearDown(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: after the scenarios:", err)
		return 1
	}
	return status
}

// setUp finds the stack and logs in to it.
func setUp(ctx context.Context) error {
	if err := find(); err != nil {
		return err
	}
	var err error
	if world.config, err = clientcmd.BuildConfigFromFlags("", world.kubeconfig); err != nil {
		return err
	}
	world.config.QPS = -1
	if world.kube, err = dynamic.NewForConfig(world.config); err != nil {
		return err
	}
	if world.cloud, err = connect(ctx, "e2e"); err != nil {
		return fmt.Errorf("cloud e2e: %w", err)
	}
	if world.admin, err = connect(ctx, "e2e-admin"); err != nil {
		return fmt.Errorf("cloud e2e-admin: %w", err)
	}
	return account(ctx)
}

// find reads the environment.
func find() error {
	if err := findStack(); err != nil {
		return err
	}
	for name, to := range map[string]*string{
		"RAVEN_E2E_KUBECONFIG": &world.kubeconfig, "RAVEN_E2E_CLOUDS": &world.clouds,
		"RAVEN_E2E_OVN_NB": &world.ovnNB, "RAVEN_E2E_OVS_DB": &world.ovsDB, "RAVEN_E2E_BRIDGE": &world.bridge,
		"RAVEN_E2E_OVS_NETNS": &world.switchSpace,
		"RAVEN_E2E_EXTERNAL":  &world.external, "RAVEN_E2E_EXTERNAL_CIDR": &world.externalCIDR,
		"RAVEN_E2E_PROVIDER_BRIDGE": &world.provider,
		"RAVEN_E2E_BIN":             &world.bin, "RAVEN_E2E_ARTIFACTS": &world.artifacts,
	} {
		if value := os.Getenv(name); value != "" {
			*to = value
		}
	}
	if world.kubeconfig == "" || world.clouds == "" {
		return errors.New("set RAVEN_E2E_STACK, as `make e2e` does, or RAVEN_E2E_KUBECONFIG and RAVEN_E2E_CLOUDS")
	}
	if program := os.Getenv("RAVEN_E2E_CONTROL"); program != "" {
		world.controls = script(program)
	}
	if world.prefix == "" {
		world.prefix = "rave2e"
	}
	if text := os.Getenv("RAVEN_E2E_PATIENCE"); text != "" {
		var err error
		if patience, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("RAVEN_E2E_PATIENCE: %w", err)
		}
	}
	world.full = os.Getenv("RAVEN_E2E_FULL") == "1"
	return folders()
}

func folders() error {
	var err error
	if world.bin == "" {
		world.bin = "../../../bin"
	}
	if world.bin, err = filepath.Abs(world.bin); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(world.bin, "raven")); err != nil {
		return fmt.Errorf("%w: run `make build` first", err)
	}
	within := "" // the machine's
	if world.stack != nil {
		within = filepath.Join(world.stack.Dir(), "r") // it goes with the stack, however the tests end
		if err := os.MkdirAll(within, 0o755); err != nil {
			return err
		}
	}
	if world.scratch, err = os.MkdirTemp(within, "re"); err != nil { // short: sockets are below it
		return err
	}
	if err := os.Chmod(world.scratch, 0o755); err != nil { // drivers run as users of their own
		return err
	}
	if world.artifacts == "" {
		world.artifacts = filepath.Join(os.TempDir(), "raven-e2e")
	}
	if world.artifacts, err = filepath.Abs(world.artifacts); err != nil {
		return err
	}
	return os.MkdirAll(world.artifacts, 0o755)
}

// tearDown ends what the scenarios shared.
func tearDown(ctx context.Context) error {
	s := world.standing
	if s == nil {
		return nil
	}
	if s.raven != nil {
		if _, err := s.raven.end(); err != nil {
			return err
		}
	}
	if err := world.cloud.purge(ctx, s.cluster); err != nil {
		return err
	}
	left, err := world.cloud.ours(ctx, s.cluster)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left in the cloud: %s", strings.Join(describe(left), ", "))
	}
	return err
}

// lacks skips a scenario where the stack has not what it needs. The harness's own has everything: there it is a
// failure.
func lacks(t *testing.T, what string) {
	t.Helper()
	if world.stack != nil {
		t.Fatal(what)
	}
	t.Skip(what)
}

// await waits for a condition, which returns what is still amiss, and ends the test where it waits in vain.
func await(t *testing.T, what string, amiss func(context.Context) string) {
	t.Helper()
	if last := waitFor(t.Context(), patience, amiss); last != "" {
		t.Fatalf("waiting for %s: %s", what, last)
	}
}

// waitFor asks until nothing is amiss or the time is over, and returns what is then.
func waitFor(ctx context.Context, bound time.Duration, amiss func(context.Context) string) string {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	last := "not looked at yet"
	for pause := 100 * time.Millisecond; ; {
		now := amiss(ctx)
		if now == "" {
			return ""
		}
		if ctx.Err() == nil || last == "not looked at yet" {
			last = now // what an interrupted look says is of no use
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause):
			pause = min(pause*3/2, 2*time.Second) // every look costs the servers time that Raven needs
		}
	}
}

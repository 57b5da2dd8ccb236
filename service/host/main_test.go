// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdk"
	"github.com/kuryr/raven/plugins/wire"
	"github.com/kuryr/raven/service/host/confine"
)

// The test binary is its own drivers: started with "driver:<mode>" it serves one, with "host:<dir>" it is a Raven
// that launches one.
func TestMain(m *testing.M) {
	if confine.Called(os.Args) {
		confine.Main(os.Args)
	}
	if len(os.Args) > 1 {
		if mode, ok := strings.CutPrefix(os.Args[1], "driver:"); ok {
			testDriver(mode)
			return
		}
		if dir, ok := strings.CutPrefix(os.Args[1], "host:"); ok {
			testHost(dir)
			return
		}
	}
	goleak.VerifyTestMain(m)
}

func testDriver(mode string) {
	switch mode {
	case "noisy":
		fmt.Println("hello on standard output")
		fmt.Print("and without a newline: ")
	case "otherversion":
		fmt.Println("1|9|unix|/nowhere|grpc|")
		_, _ = io.Copy(io.Discard, os.Stdin)
		time.Sleep(time.Minute)
	case "netrpc":
		fmt.Println("1|1|unix|/nowhere|netrpc|")
		time.Sleep(time.Minute)
	case "cookie":
		fmt.Fprintln(os.Stderr, "This binary is a plugin. These are not meant to be executed directly.")
		os.Exit(1)
	case "fails":
		fmt.Fprintln(os.Stderr, "no database today")
		os.Exit(3)
	case "silent":
		time.Sleep(time.Hour)
	case "succeeds":
		return
	case "ofthefuture": // it speaks today's protocol and later ones
		today := wire.Plugins(&wire.Plugin{Driver: &subject{mode: mode}})
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig: wire.Handshake(), GRPCServer: plugin.DefaultGRPCServer,
			VersionedPlugins: map[int]plugin.PluginSet{
				wire.ProtocolVersion: today, wire.ProtocolVersion + 1: {}, wire.ProtocolVersion + 7: {},
			},
		})
		return
	}
	sdk.Serve(&subject{mode: mode})
}

// testHost launches a driver, says its process, and waits to be killed.
func testHost(dir string) {
	own, err := os.Executable()
	if err != nil {
		panic(err)
	}
	p, err := Launch(context.Background(), Config{Path: own, Args: []string{"driver:plain"}, RuntimeDir: dir})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Status().PID)
	time.Sleep(time.Minute)
}

// subject is the driver of most tests: what it does is in the object's metadata.name.
type subject struct {
	mode   string
	values drivers.Values
}

func (s *subject) Info() drivers.Info {
	info := drivers.Info{Name: "subject", Kinds: []drivers.Kind{drivers.KindNetwork}}
	if path, ok := strings.CutPrefix(s.mode, "declares:"); ok { // beside that what is in the file
		data, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		if err := json.Unmarshal(data, &info); err != nil {
			panic(err)
		}
	}
	return info
}

func (s *subject) Configure(_ context.Context, values drivers.Values) error {
	s.values = values
	if values.String("g", "bad") != "" {
		return errors.Join(&drivers.OptionError{Group: "g", Name: "bad", Message: "is not wanted"}, errors.New("nor is that"))
	}
	return nil
}

func (s *subject) Watches() []drivers.Watch {
	return []drivers.Watch{{
		Name: s.values.String("g", "watch"), GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod",
		Source: true,
	}}
}

func (s *subject) Translate(ctx context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
	meta, err := object.Meta()
	if err != nil {
		return drivers.Set{}, err
	}
	text := ""
	switch meta.Name {
	case "panic":
		panic("boom")
	case "exit":
		fmt.Fprintln(os.Stderr, "going down")
		os.Exit(7)
	case "hang":
		<-ctx.Done()
		return drivers.Set{}, ctx.Err()
	case "spin": // and never look at the context
		select {}
	case "print":
		fmt.Println("printed later")
		fmt.Fprintln(os.Stderr, "said later")
		sdk.Logger().Warn("logged later", "key", "value")
		drivers.Logger(ctx).Warn("about the object")
	case "environ":
		text = strings.Join(os.Environ(), "\n")
	case "stdin":
		data, err := io.ReadAll(os.Stdin)
		text = fmt.Sprintf("%d bytes, %v", len(data), err)
	case "child":
		child := exec.Command("sleep", "600") // meant to outlive the call
		if err := child.Start(); err != nil {
			return drivers.Set{}, err
		}
		text = fmt.Sprint(child.Process.Pid)
	case "large":
		text = meta.Annotations["payload"]
	}
	return drivers.Set{Resources: []drivers.Resource{{Name: "n", Spec: drivers.Network{Name: &text}}}}, nil
}

func object(tb testing.TB, name, payload string) drivers.Object {
	tb.Helper()
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": name, "annotations": map[string]string{"payload": payload}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return drivers.Object{Watch: "pods", Raw: raw}
}

// ask translates an object of a name and returns the text that the subject answers.
func ask(tb testing.TB, p drivers.Driver, name, payload string) (string, error) {
	tb.Helper()
	set, err := p.Translate(tb.Context(), object(tb, name, payload), drivers.NewNeeds(nil))
	if err != nil {
		return "", err
	}
	return *set.Resources[0].Spec.(drivers.Network).Name, nil
}

func testConfig(tb testing.TB, mode string) Config {
	tb.Helper()
	own, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "host") //nolint:usetesting // t.TempDir is too long for sockets
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			tb.Errorf("left in the runtime folder: %v, %v", left, err)
		}
		_ = os.RemoveAll(dir)
	})
	return Config{
		Name: "subject", Path: own, Args: []string{"driver:" + mode}, RuntimeDir: dir,
		Values: drivers.Values{"g": {"watch": "pods"}},
		// A health check that is too impatient takes a loaded machine for a hanging driver: tests in which none hangs
		// have none.
		Timeouts: Timeouts{
			Start: hostPatience, Ping: time.Hour, Overdue: time.Hour, Drain: 300 * time.Millisecond,
			Kill: 3 * time.Second, BackoffMin: 10 * time.Millisecond,
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func launch(tb testing.TB, config Config) *Plugin {
	tb.Helper()
	p, err := Launch(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Stop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("stopping: %v", err)
		}
	})
	return p
}

// hostPatience ends a test that would wait for ever.
const hostPatience = 2 * time.Minute

// eventually waits for a condition.
func eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(hostPatience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("never: %s", what)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/sdktest"
	"github.com/kuryr/raven/plugins/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a driver made of functions.
type scripted struct {
	info      drivers.Info
	configure func(drivers.Values) error
	translate func(context.Context, drivers.Object, *drivers.Needs) (drivers.Set, error)
}

func (s *scripted) Info() drivers.Info { return s.info }

func (s *scripted) Configure(_ context.Context, values drivers.Values) error {
	if s.configure == nil {
		return nil
	}
	return s.configure(values)
}

func (s *scripted) Watches() []drivers.Watch {
	return []drivers.Watch{{
		Name: "pods", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Source: true,
		Fields: []string{"spec.nodeName"}, LabelSelector: "a=b", FieldSelector: "c=d", Namespace: "e", Optional: true,
	}}
}

func (s *scripted) Translate(ctx context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	return s.translate(ctx, object, needs)
}

func named(name string) drivers.Object {
	return drivers.Object{Watch: "pods", Raw: json.RawMessage(fmt.Sprintf(`{"metadata":{"name":%q}}`, name))}
}

func network(name string) drivers.Set {
	return drivers.Set{Resources: []drivers.Resource{{Name: name, Spec: drivers.Network{Name: &name}}}}
}

// aware is a driver that asks what the core can before it says what it is.
type aware struct {
	scripted
	told []string
}

func (a *aware) Core(capabilities []string) {
	a.told = capabilities
	a.info = drivers.Info{Name: "n", Kinds: []drivers.Kind{drivers.KindPort}}
	if slices.Contains(capabilities, drivers.KindCapability(drivers.KindLoadBalancer)) {
		a.info.Kinds = append(a.info.Kinds, drivers.KindLoadBalancer)
	}
}

// Each end tells the other what it can: the core its kinds, the driver anything. What one does not know it ignores.
func TestCapabilities(t *testing.T) {
	a := &aware{}
	client := sdktest.Connect(t, a)
	for _, name := range []string{
		"kind:port", "kind:loadbalancer", drivers.BareGroups, drivers.SoftReferences, drivers.ReverseSelectors,
	} {
		if !slices.Contains(a.told, name) {
			t.Errorf("the driver was told %v, without %s", a.told, name)
		}
	}
	if got := client.Info().Kinds; !slices.Contains(got, drivers.KindLoadBalancer) {
		t.Errorf("it makes %v", got)
	}
	for name, capabilities := range map[string][]string{
		"a core of the first release": nil, "a core of the future": {"kind:teleporter", "kind:port", "x"},
	} {
		info, err := wire.NewServer(&aware{}, wire.ServerConfig{}).GetInfo(t.Context(),
			&ravenv1.GetInfoRequest{Capabilities: capabilities})
		if err != nil || !slices.Equal(info.GetKinds(), []string{string(drivers.KindPort)}) {
			t.Errorf("%s: %v, %v", name, info.GetKinds(), err)
		}
	}
}

func TestInfoAndConfigureGoRound(t *testing.T) {
	info := drivers.Info{
		Name: "n", Version: "1", Description: "d", Role: "r", Kinds: []drivers.Kind{drivers.KindPort},
		Annotations: []string{"a"}, Labels: []string{"l"}, Capabilities: []string{"time-travel"},
		Options: []drivers.Option{
			{
				Group: "g", Name: "n", Type: drivers.IntegerOption, Default: "", HasDefault: true, Min: new(0.0), Max: new(9.5),
				Help: "h",
			},
			{
				Group: "g", Name: "m", Type: drivers.DictOption, Choices: []string{"a"}, Required: true, Secret: true,
				Deprecated: [][2]string{{"x", "y"}}, Env: []string{"E"},
			},
			{
				Group: "g", Name: "o", Type: drivers.ListOption, Item: drivers.CIDROption, IPVersion: 6, Pattern: "^f",
				IgnoreCase: true,
				MaxLength:  9, Schemes: []string{"https"}, ChoiceHelp: map[string]string{"a": "b"}, SampleDefault: "s",
				Advanced:             true,
				DeprecatedForRemoval: true, DeprecatedSince: "2", DeprecatedReason: "r",
			},
			{Group: "t", Name: "port", Type: drivers.PortOption},
			{Group: "t", Name: "duration", Type: drivers.DurationOption},
			{Group: "t", Name: "multi", Type: drivers.MultiOption},
			{Group: "t", Name: "ip", Type: drivers.IPOption},
			{Group: "t", Name: "cidr", Type: drivers.CIDROption},
			{Group: "t", Name: "uri", Type: drivers.URIOption},
			{Group: "t", Name: "hostname", Type: drivers.HostnameOption},
			{Group: "t", Name: "host_address", Type: drivers.HostAddressOption},
		},
	}
	values := drivers.Values{"g": {
		"s": "", "i": int64(-3), "b": true, "f": 1.5, "l": []string{}, "d": map[string]string{"a": "b"},
	}}
	var got drivers.Values
	client := sdktest.Connect(t, &scripted{info: info, configure: func(v drivers.Values) error { got = v; return nil }})
	if diff := cmp.Diff(info, client.Info()); diff != "" {
		t.Errorf("info changed:\n%s", diff)
	}
	if err := client.Configure(t.Context(), values); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(values, got); diff != "" {
		t.Errorf("values changed:\n%s", diff)
	}
	if diff := cmp.Diff((&scripted{}).Watches(), client.Watches()); diff != "" {
		t.Errorf("watches changed:\n%s", diff)
	}
}

func TestRefusedConfigurationReadsTheSame(t *testing.T) {
	refusal := errors.Join(&drivers.OptionError{Group: "g", Name: "n", Message: "is odd"}, errors.New("no"))
	client := sdktest.Connect(t, &scripted{configure: func(drivers.Values) error { return refusal }})
	err := client.Configure(t.Context(), nil)
	var option *drivers.OptionError
	if !errors.As(err, &option) || option.Name != "n" {
		t.Errorf("got %v, want the option named", err)
	}
	if err != nil && !strings.Contains(err.Error(), "is odd") {
		t.Errorf("got %v", err)
	}
}

func TestErrorsAreOfOneObject(t *testing.T) {
	driver := &scripted{translate: func(ctx context.Context, object drivers.Object,
		needs *drivers.Needs,
	) (drivers.Set, error) {
		meta, err := object.Meta()
		if err != nil {
			return drivers.Set{}, err
		}
		switch meta.Name {
		case "terminal":
			return drivers.Set{}, errors.New("no such thing")
		case "panic":
			panic("boom")
		case "goexit":
			runtime.Goexit()
		case "utf8":
			return network("\xff"), nil
		case "badset":
			return drivers.Set{Resources: []drivers.Resource{{Name: "r"}}}, nil
		case "huge":
			return network(strings.Repeat("x", wire.MaxMessage)), nil
		case "hang":
			<-ctx.Done()
			return drivers.Set{}, ctx.Err()
		}
		return network(meta.Name), nil
	}}
	client := sdktest.Connect(t, driver)
	for name, want := range map[string]wire.Code{
		"terminal": wire.Terminal, "panic": wire.Panic, "goexit": wire.Panic, "utf8": wire.Terminal, "badset": wire.Terminal,
		"huge": wire.Terminal, "hang": wire.Deadline,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			if name != "hang" {
				ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
			}
			defer cancel()
			_, err := client.Translate(ctx, named(name), drivers.NewNeeds(nil))
			var own *wire.Error
			if !errors.As(err, &own) || own.Code != want {
				t.Errorf("got %v, want code %s", err, want)
			}
			set, err := client.Translate(t.Context(), named("fine"), drivers.NewNeeds(nil))
			if err != nil || len(set.Resources) != 1 {
				t.Errorf("another object afterwards: %v, %v", set, err)
			}
		})
	}
}

func TestNeedsGoRound(t *testing.T) {
	service := drivers.Need{Watch: "services", Namespace: "a", Name: "b"}
	absent := drivers.Need{Watch: "slices", Namespace: "a", Selector: "x=y"}
	driver := &scripted{translate: func(_ context.Context, _ drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
		objects, ok := needs.Get(service)
		if !ok {
			return drivers.Set{}, nil
		}
		if none, ok := needs.Get(absent); !ok || len(none) != 0 {
			return drivers.Set{}, nil
		}
		return network(string(objects[0].Raw)), nil
	}}
	client := sdktest.Connect(t, driver)
	answers := map[drivers.Need][]drivers.Object{
		service: {{Watch: "services", Raw: json.RawMessage(`{"a":1}`)}}, absent: {},
	}
	set, asked, err := sdktest.Translate(t.Context(), client, named("p"),
		func(need drivers.Need) ([]drivers.Object, bool) {
			objects, ok := answers[need]
			return objects, ok
		})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]drivers.Need{service, absent}, asked); diff != "" {
		t.Errorf("asked:\n%s", diff)
	}
	if set.Resources[0].Name != `{"a":1}` {
		t.Errorf("got %v", set)
	}
}

func TestManyConcurrentCalls(t *testing.T) {
	driver := &scripted{translate: func(_ context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
		meta, err := object.Meta()
		return network(meta.Name), err
	}}
	client := sdktest.Connect(t, driver)
	var wait sync.WaitGroup
	for i := range 2000 {
		wait.Go(func() {
			name := fmt.Sprint(i)
			set, err := client.Translate(t.Context(), named(name), drivers.NewNeeds(nil))
			if err != nil || set.Resources[0].Name != name {
				t.Errorf("%s: %v, %v", name, set, err)
			}
		})
	}
	wait.Wait()
}

func TestCancelledCallsAreCancelledInTheDriver(t *testing.T) {
	started, stopped := make(chan struct{}), make(chan struct{})
	driver := &scripted{translate: func(ctx context.Context, _ drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
		close(started)
		<-ctx.Done()
		close(stopped)
		return drivers.Set{}, ctx.Err()
	}}
	client := sdktest.Connect(t, driver)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if _, err := client.Translate(ctx, named("a"), drivers.NewNeeds(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-stopped
}

func TestHangingObjectsHoldUpNobody(t *testing.T) {
	release := make(chan struct{})
	var hanging atomic.Int32
	driver := &scripted{translate: func(_ context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
		meta, err := object.Meta()
		if meta.Name == "hang" { // and ignores its context
			hanging.Add(1)
			<-release
		}
		return network(meta.Name), err
	}}
	client := sdktest.Connect(t, driver)
	t.Cleanup(func() { close(release) })
	hang := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := client.Translate(ctx, named("hang"), drivers.NewNeeds(nil))
		return err
	}
	for hanging.Load() < 8 {
		if err := hang(); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := client.Translate(t.Context(), named("fine"), drivers.NewNeeds(nil)); err != nil {
		t.Errorf("another object: %v", err)
	}
	for !errors.Is(hang(), wire.ErrUnavailable) { // too many: the stream is given up
		if hanging.Load() > 100 {
			t.Fatal("the driver goes on with any number of abandoned translations")
		}
	}
	<-client.Done()
}

func TestDrainWaitsAndRefuses(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	driver := &scripted{translate: func(context.Context, drivers.Object, *drivers.Needs) (drivers.Set, error) {
		once.Do(func() { close(started) })
		<-release
		return drivers.Set{}, nil
	}}
	client := sdktest.Connect(t, driver)
	first := make(chan error, 1)
	go func() {
		_, err := client.Translate(t.Context(), named("a"), drivers.NewNeeds(nil))
		first <- err
	}()
	<-started
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("draining with work in hand: %v", err)
	}
	if _, err := client.Translate(t.Context(), named("b"), drivers.NewNeeds(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("a call while draining: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the call in hand: %v", err)
	}
	if err := client.Drain(t.Context()); err != nil {
		t.Errorf("draining: %v", err)
	}
}

func TestCloseEndsCallsInFlight(t *testing.T) {
	started := make(chan struct{})
	driver := &scripted{translate: func(ctx context.Context, _ drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
		close(started)
		<-ctx.Done()
		return drivers.Set{}, ctx.Err()
	}}
	client := sdktest.Connect(t, driver)
	go func() {
		<-started
		client.Close()
	}()
	if _, err := client.Translate(t.Context(), named("a"), drivers.NewNeeds(nil)); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkTranslate(b *testing.B) {
	driver := &scripted{translate: func(_ context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
		meta, err := object.Meta()
		return network(meta.Name), err
	}}
	call := func(b *testing.B, driver drivers.Driver, parallel int) {
		b.Helper()
		b.SetParallelism(parallel)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := driver.Translate(b.Context(), named("a"), drivers.NewNeeds(nil)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.Run("direct", func(b *testing.B) { call(b, driver, 64) })
	b.Run("grpc", func(b *testing.B) { call(b, sdktest.Connect(b, driver), 64) })
	// more than is in the driver at a time
	b.Run("grpc/replay", func(b *testing.B) { call(b, sdktest.Connect(b, driver), 512) })
}

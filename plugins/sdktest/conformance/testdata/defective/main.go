// Command defective is a driver with one defect, which its argument names, or with "none": the conformance suite is tried on it.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdk"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: defective DEFECT")
		os.Exit(2)
	}
	defect := os.Args[1]
	d := &driver{defect: defect, seen: map[string][]byte{}}
	if defect == "orphan" {
		_ = os.Unsetenv("RAVEN_LIFELINE_FD")
	}
	if defect == "no-driver" {
		fmt.Println("I am something else.")
		return
	}
	sdk.Serve(d)
}

// driver gives every Widget a network, and has one defect or none.
type driver struct {
	defect string
	mu     sync.Mutex
	seen   map[string][]byte
	calls  int
}

func (d *driver) Info() drivers.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	info := drivers.Info{
		Name: "widget", Version: "1", Description: "Networks for widgets.", Kinds: []drivers.Kind{drivers.KindNetwork},
		Annotations: []string{"example.org/network"},
		Options: []drivers.Option{{
			Group: "widget", Name: "colour", Type: drivers.StringOption, Default: "red", HasDefault: true, Choices: []string{"red", "blue"}, Help: "Which.",
		}},
	}
	switch d.defect {
	case "name":
		info.Name = "My Widget"
	case "kind":
		info.Kinds = append(info.Kinds, "toaster")
	case "default":
		info.Options[0].Default = "green"
	}
	return info
}

func (d *driver) Configure(context.Context, drivers.Values) error {
	if d.defect == "refuses" {
		return errors.New("nothing is ever right")
	}
	return nil
}

func (d *driver) Watches() []drivers.Watch {
	gvr := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	all := []drivers.Watch{
		{Name: "widgets", GVR: gvr, Kind: "Widget", Fields: []string{"spec"}, Source: d.defect != "no-source", LabelSelector: "shown in (yes)"},
		{Name: "namespaces", GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace", Fields: []string{"metadata.labels"}},
	}
	if d.defect == "selector" {
		all[0].LabelSelector = "a in ("
	}
	return all
}

func (d *driver) Translate(ctx context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	meta, err := object.Meta()
	if err != nil {
		if d.defect == "panics" {
			panic(err)
		}
		return drivers.Set{}, err
	}
	if d.defect == "dies" && meta.Name == "" {
		os.Exit(3)
	}
	if d.defect == "hangs" && meta.Annotations["huge"] != "" {
		<-make(chan struct{}) // for good, whatever ctx says
	}
	if err := d.ask(needs, meta.Namespace); err != nil {
		return drivers.Set{}, err
	}
	if needs.Open() {
		return drivers.Set{}, nil
	}
	name := meta.Name + "-network"
	d.impure(&name, meta.Name, string(meta.UID), object.Raw)
	set := drivers.Set{Resources: []drivers.Resource{{Name: "network", Spec: drivers.Network{Name: new(name)}}}}
	if d.defect == "invalid" {
		set.Outputs = []drivers.Output{{Kind: drivers.Annotation, Key: "example.org/other", Text: drivers.Text("x")}}
	}
	return set, ctx.Err()
}

func (d *driver) ask(needs *drivers.Needs, namespace string) error {
	rounds := 1
	switch d.defect {
	case "unsettled":
		rounds = 100
	case "unknown-watch":
		needs.Get(drivers.Need{Watch: "nothing", Name: "x"})
		return nil
	}
	for i := range rounds {
		need := drivers.Need{Watch: "namespaces", Name: namespace}
		if i > 0 {
			need.Name = fmt.Sprint(namespace, i)
		}
		if _, ok := needs.Get(need); !ok {
			return nil
		}
	}
	return nil
}

// impure does what a pure function does not.
func (d *driver) impure(name *string, object, uid string, raw []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	switch d.defect {
	case "state":
		*name += fmt.Sprint(d.calls)
	case "order":
		many := map[int]bool{}
		for i := range 50 {
			many[i] = true
		}
		*name += fmt.Sprint(slices.Collect(maps.Keys(many)))
	case "clock":
		*name += fmt.Sprint(time.Now().Unix())
	case "environment":
		*name += os.Getenv("TZ")
	case "opens":
		file, _ := os.Open(os.Args[0])
		runtime.SetFinalizer(file, nil)
	case "starts":
		_ = exec.Command("/bin/sleep", "3").Start()
	case "keeps":
		d.seen[object+uid] = append([]byte{}, raw...)
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// writer is a scripted driver of all ConfigMaps that are labelled for it; it may write two annotations.
type writer struct{ *scripted }

func (r writer) Info() drivers.Info {
	info := r.scripted.Info()
	info.Annotations = []string{"example.org/same", "example.org/" + r.name}
	return info
}

func (r writer) Watches() []drivers.Watch {
	watches := r.scripted.Watches()
	watches[0].LabelSelector = "for"
	return watches
}

func writing(key, text string) drivers.Output {
	return drivers.Output{Kind: drivers.Annotation, Key: "example.org/" + key, Text: drivers.Text(text)}
}

// TestAKeyThatTwoWrite is a conflict shown on both. What is written stays, and neither writes on and on.
func TestAKeyThatTwoWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(drivers.Set{Outputs: []drivers.Output{writing("same", `{"by":"a"}`), writing("a", `{}`)}}))
	b := script("b", always(drivers.Set{Outputs: []drivers.Output{writing("b", `{}`)}}))
	r := w.start(setup{drivers: map[string]drivers.Driver{"a": writer{a}, "b": writer{b}}})
	w.createMap("us", "x")
	r.settled(2)
	same := func() any { return w.annotation(configMaps(), "default", "x", "example.org/same")["by"] }
	if same() != "a" {
		t.Fatalf("it is by %v", same())
	}
	b.now(always(drivers.Set{Outputs: []drivers.Output{writing("same", `{"by":"b"}`), writing("b", `{"more":1}`)}}))
	r.engine.Replay("b")
	const why = "annotation example.org/same is written by driver a and by driver b"
	r.stands("a", "x", state.Waiting, why)
	r.stands("b", "x", state.Waiting, why)
	version := func() any {
		object, err := w.kube.Get(configMaps(), "default", "x")
		if err != nil {
			t.Fatal(err)
		}
		return object["metadata"].(map[string]any)["resourceVersion"]
	}
	before := version()
	time.Sleep(300 * time.Millisecond)
	if now := version(); now != before {
		t.Errorf("they go on writing: version %v, then %v", before, now)
	}
	if same() != "a" {
		t.Errorf("it is by %v", same())
	}
	w.events("Conflict", 1)

	a.now(always(drivers.Set{Outputs: []drivers.Output{writing("a", `{}`)}}))
	r.engine.Replay("a")
	r.settled(2)
	w.eventually("the other's", func() (bool, string) { return same() == "b", "" })
	if w.annotation(configMaps(), "default", "x", "example.org/b")["more"] == nil {
		t.Error("what it writes besides is missing")
	}
}

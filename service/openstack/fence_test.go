// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/cloud"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

func TestTheFenceLetsNoChangePass(t *testing.T) {
	s := stacktest.StartSim(t, sim.Options{})
	c := connect(t, stacktest.SimConfig(s, sim.UserKuryr))
	create := func(name string) error {
		_, err := c.Neutron.Create(t.Context(), drivers.KindNetwork, stacktest.Named(name), map[string]any{"name": name})
		return err
	}
	if err := create("before"); err != nil {
		t.Fatalf("before there is a fence: %v", err)
	}
	c.Fence()
	writes := s.Stats().Writes
	router := c.Neutron.Delete(t.Context(), drivers.KindRouter, "r1")
	for name, err := range map[string]error{"a create in bulk": create("fenced"), "a delete": router} {
		if !errors.Is(err, openstack.ErrFenced) || openstack.Classify(err) != openstack.ClassRetry {
			t.Errorf("%s: %v (%v)", name, err, openstack.Classify(err))
		}
	}
	if _, err := c.Neutron.Observe(t.Context(), "c1"); err != nil {
		t.Errorf("reading: %v", err)
	}
	term, end := context.WithCancel(t.Context())
	defer end()
	var valid atomic.Bool
	valid.Store(true)
	c.Admit(term, valid.Load)
	if err := create("admitted"); err != nil {
		t.Errorf("admitted: %v", err)
	}
	valid.Store(false)
	if err := create("invalid"); !errors.Is(err, openstack.ErrFenced) {
		t.Errorf("when the term is not valid any more: %v", err)
	}
	valid.Store(true)
	if sent := s.Stats().Writes - writes; sent != 1 {
		t.Errorf("%d changes were sent, wanted 1", sent)
	}

	// What is under way when the term ends is broken off, and may have taken effect.
	if _, err := s.AddFault(sim.Rule{Method: http.MethodPost, Kind: "network", Action: sim.ActionTimeout}); err != nil {
		t.Fatal(err)
	}
	broken := createLater(t.Context(), c)
	for deadline := time.Now().Add(2 * time.Minute); s.Faults()[0].Acted == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the create is not under way")
		}
	}
	end()
	select {
	case err := <-broken:
		if openstack.Classify(err) != openstack.ClassAmbiguous {
			t.Errorf("broken off: %v (%v)", err, openstack.Classify(err))
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the create goes on after the end of the term")
	}
	if err := create("late"); !errors.Is(err, openstack.ErrFenced) {
		t.Errorf("after the end of the term: %v", err)
	}
}

// createLater creates a network in the background.
func createLater(ctx context.Context, c *cloud.Cloud) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.Neutron.Create(ctx, drivers.KindNetwork, stacktest.Named("broken"), map[string]any{"name": "broken"})
		done <- err
	}()
	return done
}

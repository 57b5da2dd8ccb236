// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/kuryr/raven/service/node/cniapi"
)

// TestBadRequests get an error with CNI's code, and a sentence.
func TestBadRequests(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	b := r.box("s")
	good := b.request(cniapi.Add, pod)
	for name, test := range map[string]struct {
		change func(*cniapi.Request)
		code   uint
	}{
		"no container":      {func(q *cniapi.Request) { q.ContainerID = "" }, types.ErrInvalidEnvironmentVariables},
		"hostile container": {func(q *cniapi.Request) { q.ContainerID = "a b" }, types.ErrInvalidEnvironmentVariables},
		"hostile interface": {func(q *cniapi.Request) { q.IfName = "../eth0" }, types.ErrInvalidEnvironmentVariables},
		"no netns":          {func(q *cniapi.Request) { q.Netns = "" }, types.ErrInvalidEnvironmentVariables},
		"no pod":            {func(q *cniapi.Request) { q.Args = "IgnoreUnknown=1" }, types.ErrInvalidEnvironmentVariables},
		"broken arguments":  {func(q *cniapi.Request) { q.Args = "K8S_POD_NAME" }, types.ErrInvalidEnvironmentVariables},
		"unknown command":   {func(q *cniapi.Request) { q.Command = "MOVE" }, types.ErrInvalidEnvironmentVariables},
	} {
		request := good
		test.change(&request)
		if _, err := r.call(request); codeOf(err) != test.code {
			t.Errorf("%s: %v (code %d), want code %d", name, err, codeOf(err), test.code)
		}
	}
	r.attach(pod, 1)
	for _, path := range []string{"/nowhere/at/all", r.config.Plugin, "/proc/self/ns/uts", t.TempDir()} {
		bad := good
		bad.Netns = path
		if _, err := r.call(bad); codeOf(err) != types.ErrInvalidNetNS || !strings.Contains(err.Error(), path) {
			t.Errorf("%s is no network namespace: %v", path, err)
		}
	}
}

// TestClientGoneWhileItWrites: a plugin that is killed while the daemon writes to Open vSwitch's database does not cost
// the others the connection.
func TestClientGoneWhileItWrites(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	b := r.box("s")
	r.must(r.server.Pause())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.callWithin(ctx, b.request(cniapi.Add, pod))
		done <- err
	}()
	r.until("the link, after which the row is written", func() bool {
		there, err := r.node.links.exists(hostName("s", "eth0"))
		return err == nil && there
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("the plugin was killed, and has got a result")
	}
	r.must(r.server.Resume())
	r.until("what the ADD has made to go", func() bool {
		if _, _, err := r.node.ovs.View(); err != nil {
			t.Error(err)
			return true
		}
		there, err := r.node.links.exists(hostName("s", "eth0"))
		return err == nil && !there
	})
	if rows := r.rows(); len(rows) > 0 {
		t.Errorf("rows %v", rows)
	}
}

// TestClientGone: a plugin that is killed while it waits leaves nothing behind.
func TestClientGone(t *testing.T) {
	r := started(t)
	r.controller.Pause()
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	b := r.box("s")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.callWithin(ctx, b.request(cniapi.Add, pod))
		done <- err
	}()
	r.until("the row", func() bool { return len(r.rows()) == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Error("the plugin was killed, and has got a result")
	}
	r.until("the row to go", func() bool { return len(r.rows()) == 0 })
	r.until("the link to go", func() bool {
		there, err := r.node.links.exists(hostName("s", "eth0"))
		return err == nil && !there
	})
}

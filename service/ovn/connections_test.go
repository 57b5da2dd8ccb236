// SPDX-License-Identifier: Apache-2.0

package ovn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/test/sim/northbound"
)

// TestServerHangs: a transaction that is not answered may be committed or not; what is written afterwards must not
// make a second one. One that is larger than all buffers between us and the server is not even sent: that must not
// keep anybody either.
func TestServerHangs(t *testing.T) {
	for name, vips := range map[string][]any{
		"small": {vip("TCP", "10.0.0.1", 80, 0)}, "larger than the buffers": manyVIPs(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			r := connect(t, server, ovn.Config{Endpoints: []string{server.Unix()}, Timeout: 6 * time.Second, Probe: time.Second})
			g := r.group()
			if err := server.Freeze(); err != nil {
				t.Fatal(err)
			}
			// It returns though the server says nothing before the end of the test.
			_, err := r.Create(t.Context(), kindBalancer, identity("service-proxy", "u1", "lb"),
				map[string]any{"name": "web/u1", "group_id": g, "vips": vips})
			if unavailable := (*ovn.UnavailableError)(nil); !errors.As(err, &unavailable) {
				t.Errorf("error %v, want an UnavailableError", err)
			}
			r.until("the silence is noticed", func() bool { return !r.Status().Connected })
			if err := server.Thaw(); err != nil {
				t.Fatal(err)
			}
			r.until("it is back", func() bool { return r.Status().Connected })
			r.until("it is written", func() bool {
				_, err := r.Create(t.Context(), kindBalancer, identity("service-proxy", "u1", "lb"),
					map[string]any{"name": "web/u1", "group_id": g, "vips": vips})
				if unavailable := (*ovn.UnavailableError)(nil); errors.As(err, &unavailable) {
					return false // a loaded machine may need longer than the timeout for a large one
				}
				if err != nil {
					t.Fatal(err)
				}
				return true
			})
			if rows := r.column("Load_Balancer", "name"); len(rows) != 1 {
				t.Errorf("rows %v, want one", rows)
			}
		})
	}
}

func manyVIPs() []any {
	var vips []any
	for i := range 199 {
		var backends []any
		for j := range 249 {
			backends = append(backends, backend(fmt.Sprintf("10.1.%d.%d", i, j), 8080))
		}
		vips = append(vips, vip("TCP", fmt.Sprint("10.0.0.", i+1), 80, 0, backends...))
	}
	return vips
}

// TestCloseWhileTheServerHangs: a stop waits neither for the answer to a transaction nor for one that cannot be sent.
func TestCloseWhileTheServerHangs(t *testing.T) {
	for name, vips := range map[string][]any{
		"small": {vip("TCP", "10.0.0.1", 80, 0)}, "larger than the buffers": manyVIPs(),
	} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			r := connect(t, server, ovn.Config{Endpoints: []string{server.Unix()}, Timeout: time.Hour, Probe: time.Hour})
			g := r.group()
			if err := server.Freeze(); err != nil {
				t.Fatal(err)
			}
			written := make(chan error, 1)
			go func() {
				_, err := r.Create(t.Context(), kindBalancer, identity("service-proxy", "u1", "lb"),
					map[string]any{"name": "web/u1", "group_id": g, "vips": vips})
				written <- err
			}()
			time.Sleep(100 * time.Millisecond) // that it is under way; where it is not, this shows less
			r.Close()                          // which would take an hour if it waited for the server
			if err := <-written; err == nil {
				t.Error("the write has succeeded")
			}
			if err := server.Thaw(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestQuietServerThatHangsIsNoticed(t *testing.T) {
	server := start(t)
	r := connect(t, server,
		ovn.Config{Endpoints: []string{server.Unix()}, Timeout: 300 * time.Millisecond, Probe: 50 * time.Millisecond})
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	r.until("the silence is noticed", func() bool { return !r.Status().Connected })
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	r.until("it is back", func() bool { return r.Status().Connected })
}

// TestServersThatDoNotAnswerCostLittle: those that take a connection and say nothing, or that are not reached, are
// not waited for.
func TestServersThatDoNotAnswerCostLittle(t *testing.T) {
	server := start(t)
	var endpoints []string
	for i := range 3 {
		path := fmt.Sprintf("%s/silent%d", t.TempDir(), i)
		silent, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = silent.Close() })
		endpoints = append(endpoints, "unix:"+path)
	}
	// Were it waited for one of them, connect would give up before.
	r := connect(t, server, ovn.Config{Endpoints: append(endpoints, server.Unix()), Timeout: 10 * patience})
	r.group()
}

func TestNobodyThere(t *testing.T) {
	n, err := ovn.Open(t.Context(), ovn.Config{Cluster: "c1", Endpoints: []string{"unix:" + t.TempDir() + "/none"}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	unavailable := (*ovn.UnavailableError)(nil)
	if err := n.WaitConnected(ctx); !errors.As(err, &unavailable) {
		t.Errorf("error %v, want an UnavailableError", err)
	}
	if _, err := n.Create(t.Context(), kindGroup, identity(plan.Shared, "", "g"), nil); !errors.As(err, &unavailable) {
		t.Errorf("error %v, want an UnavailableError", err)
	}
}

func TestConnections(t *testing.T) {
	dir := t.TempDir()
	if err := northbound.Certificates(dir, "server", "raven"); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := northbound.Certificates(other, "raven"); err != nil {
		t.Fatal(err)
	}
	server := start(t, func(c *northbound.Config) { c.TCP, c.TLS = true, dir })
	files := func(c ovn.Config, own, authority string) ovn.Config {
		c.PrivateKey, c.Certificate, c.CACert = own+"/raven-privkey.pem", own+"/raven-cert.pem", authority+"/cacert.pem"
		return c
	}
	nobody := "tcp:127.0.0.1:1"
	for name, c := range map[string]ovn.Config{
		"tcp":                   {Endpoints: []string{server.TCP()}},
		"ssl":                   files(ovn.Config{Endpoints: []string{server.SSL()}}, dir, dir),
		"the second of several": {Endpoints: []string{nobody, server.Unix()}},
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, server, c)
			r.group()
			if got := r.Status().Endpoint; got == nobody || got == "" {
				t.Errorf("endpoint %q", got)
			}
		})
	}
	for name, c := range map[string]ovn.Config{
		"a client certificate of another authority": files(ovn.Config{Endpoints: []string{server.SSL()}}, other, dir),
		"a server certificate of another authority": files(ovn.Config{Endpoints: []string{server.SSL()}}, dir, other),
	} {
		t.Run(name, func(t *testing.T) {
			c.Cluster, c.Timeout = "c1", time.Second
			n, err := ovn.Open(t.Context(), c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			for end := time.Now().Add(patience); !strings.Contains(n.Status().Error,
				"certificate"); time.Sleep(5 * time.Millisecond) {
				if n.Status().Connected || time.Now().After(end) {
					t.Fatalf("connected %v, error %q, want one about the certificate", n.Status().Connected, n.Status().Error)
				}
			}
		})
	}
}

// TestClusterIsWrittenToAtItsLeader: of three servers only the leader is used, and the next one when that is gone.
func TestClusterIsWrittenToAtItsLeader(t *testing.T) {
	ports := make([]string, 3)
	for i := range ports {
		port, err := northbound.FreePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = fmt.Sprint("127.0.0.1:", port)
	}
	var servers []*northbound.Server
	var endpoints, dirs []string
	for i, raft := range ports {
		servers = append(servers, start(t, func(c *northbound.Config) {
			if c.Cluster, c.Raft = i+1, raft; i > 0 {
				c.Join = ports[0]
			}
			dirs = append(dirs, c.Dir)
		}))
		endpoints = append([]string{servers[i].Unix()}, endpoints...) // the leader, which is the first, stands last
	}
	r := connect(t, servers[0], ovn.Config{Endpoints: endpoints})
	for _, dir := range dirs { // two that are left are a majority only if all three have joined
		r.until("all know all", func() bool {
			out, err := exec.CommandContext(t.Context(), "ovs-appctl", "-t", dir+"/ctl", "cluster/status",
				"OVN_Northbound").Output()
			return err == nil && strings.Contains(string(out), "Status: cluster member") &&
				strings.Count(string(out), " at tcp:") == len(ports)
		})
	}
	g := r.group()
	was := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0))
	if got := r.Status().Endpoint; got != servers[0].Unix() {
		t.Errorf("written to %s, want the leader, %s", got, servers[0].Unix())
	}
	r.seen.forget()
	servers[0].Kill()
	r.until("another one leads", func() bool { s := r.Status(); return s.Connected && s.Endpoint != servers[0].Unix() })
	if now, there, err := r.Get(kindBalancer, was.ID); err != nil || !there || !cmp.Equal(now, was) {
		t.Errorf("at the next leader it is %v, error %v", now, err)
	}
	r.until("it can be written to", func() bool {
		_, err := r.Update(t.Context(), kindBalancer, was.ID, map[string]any{"vips": []any{vip("TCP", "10.0.0.2", 80, 0)}})
		return err == nil
	})
	if r.seen.hasChanged(was.ID) {
		t.Error("the change of leaders made a load balancer look different")
	}
}

// slow passes on what a server and its client say, at most so many bytes of the server's at once, with a pause after
// each; after what the server sends exceeds upTo bytes it passes on nothing more. It returns its endpoint.
func slow(t *testing.T, server *northbound.Server, pause time.Duration, upTo int) string {
	t.Helper()
	path := t.TempDir() + "/slow"
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "unix",
				strings.TrimPrefix(server.Unix(), "unix:"))
			if err != nil {
				_ = client.Close()
				continue
			}
			work.Go(func() {
				_, _ = io.Copy(behind, client)
				_, _ = client.Close(), behind.Close()
			})
			work.Go(func() {
				chunk := make([]byte, 64<<10)
				for sent := 0; ; {
					n, err := behind.Read(chunk)
					if sent += n; err != nil {
						return
					}
					if sent > upTo {
						continue
					}
					if _, err := client.Write(chunk[:n]); err != nil {
						return
					}
					time.Sleep(pause)
				}
			})
		}
	})
	return "unix:" + path
}

// TestLargeDatabaseIsCopied: that copying takes longer than connection_timeout is no reason to give up, as long as
// the server sends something; that it says nothing is.
func TestLargeDatabaseIsCopied(t *testing.T) {
	r := newRig(t)
	g := r.group()
	for i := range 2 {
		r.balancer(fmt.Sprint("u", i), g, manyVIPs()[i*99:i*99+99]...)
	}
	const bound = 1500 * time.Millisecond
	began := time.Now()
	other := connect(t, r.server, ovn.Config{Endpoints: []string{slow(t, r.server, bound/5, 1<<30)}, Timeout: bound})
	if took := time.Since(began); took < 2*bound {
		t.Errorf("it took %s only: that shows nothing", took)
	}
	if list, err := other.List(kindBalancer); err != nil || len(list) != 2 {
		t.Errorf("%d load balancers, error %v", len(list), err)
	}
	n, err := ovn.Open(t.Context(), ovn.Config{
		Cluster: "c1", Endpoints: []string{slow(t, r.server, 0, 256<<10)}, Timeout: bound,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	r.until("it is told that the server says nothing more", func() bool {
		return strings.Contains(n.Status().Error, "it has sent nothing for 1.5s: see [ovn] connection_timeout")
	})
}

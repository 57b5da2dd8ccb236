// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/watch"
)

// allOptions are those that a node's daemon reads.
func allOptions() []config.Option {
	var all []config.Option
	for _, options := range [][]config.Option{
		Options(), service.Options(), log.Options(), health.Options(), watch.Options(),
	} {
		all = append(all, options...)
	}
	return all
}

// lines is an output that several goroutines write to.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// TestRun is the process from its configuration to the signal that ends it: readiness, metrics and the log follow.
func TestRun(t *testing.T) {
	r := newRig(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	address := listener.Addr().String()
	r.must(listener.Close()) // this network namespace is the tests' alone
	_, port, _ := net.SplitHostPort(address)
	sources := config.Sources{Args: map[config.Name][]string{
		{Group: "health_server", Name: "port"}:       {port},
		{Group: "prometheus_exporter", Name: "port"}: {"0"},
		{Group: "kubernetes", Name: "api_root"}:      {r.api.URL()},
		{Group: optionGroup, Name: "node_name"}:      {nodeName},
		{Group: optionGroup, Name: "ovs_connection"}: {r.config.OVS},
		{Group: optionGroup, Name: "socket"}:         {r.config.Socket},
		{Group: optionGroup, Name: "cni_plugin"}:     {r.config.Plugin},
		{Group: optionGroup, Name: "cni_bin_dir"}:    {r.config.BinDir},
		{Group: optionGroup, Name: "cni_conf_dir"}:   {r.config.ConfDir},
		{Group: "DEFAULT", Name: "log_file"}:         {filepath.Join(r.dir, "node.log")},
	}}
	values, _, err := config.Load(sources, allOptions())
	r.must(err)
	signals, ended := make(chan os.Signal, 2), make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Process{Values: values, Version: "test", Signals: signals, Stderr: &lines{}})
	}()
	get := func(path string) (int, string) {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, ""
		}
		defer response.Body.Close()
		var body bytes.Buffer
		_, err = body.ReadFrom(response.Body)
		r.must(err)
		return response.StatusCode, body.String()
	}
	r.until("readiness", func() bool { status, _ := get("/readyz"); return status == http.StatusOK })
	_, err = r.call(cniapi.Request{Command: cniapi.Status})
	r.must(err)
	if _, metrics := get("/metrics"); !strings.Contains(metrics,
		`raven_node_cni_requests_total{command="STATUS",result="ok"} 1`) {
		t.Errorf("metrics: %s", metrics)
	}
	path := filepath.Join(r.dir, "node.log")
	r.must(os.Rename(path, path+".1"))
	signals <- syscall.SIGHUP
	r.until("the log to be opened anew", func() bool { _, err := os.Stat(path); return err == nil })
	signals <- syscall.SIGTERM
	r.must(<-ended)
	http.DefaultClient.CloseIdleConnections()
	if _, err := r.call(cniapi.Request{Command: cniapi.Status}); codeOf(err) != codeNotAvailable {
		t.Errorf("STATUS after the end: %v", err)
	}
}

// TestRequestAfterTheEnd: a request that comes in while the daemon ends, by a connection that it has taken already, is
// told to come again before it uses what is closed by then.
func TestRequestAfterTheEnd(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	r.stop(r.node)
	body, err := json.Marshal(r.box("s").request(cniapi.Del, pod))
	r.must(err)
	answer := httptest.NewRecorder()
	r.node.handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, cniapi.Path,
		bytes.NewReader(body)))
	var refused types.Error
	r.must(json.Unmarshal(answer.Body.Bytes(), &refused))
	if refused.Code != types.ErrTryAgainLater || !strings.Contains(refused.Msg, "stopping") {
		t.Errorf("answer %s", answer.Body)
	}
}

// TestStopAtOnce: a stop that waits for nothing, in the middle of requests, ends all that was begun.
func TestStopAtOnce(t *testing.T) {
	r := newRig(t)
	for range 20 {
		r.start()
		asking, enough := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				for asking.Err() == nil {
					_, _ = r.callWithin(asking, cniapi.Request{Command: cniapi.Status}) // it is about the stop
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := r.node.Stop(ctx, false); err != nil {
			t.Error(err)
		}
		enough()
		work.Wait()
		cancel()
		r.must(r.node.Wait())
	}
}

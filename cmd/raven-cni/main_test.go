// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/test/programs"
)

// call runs the program as a container runtime does, and returns what it prints and whether it succeeds.
func call(t *testing.T, program, stdin string, environment ...string) (map[string]any, bool) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program)
	command.Env = append([]string{
		"CNI_CONTAINERID=sandbox-1", "CNI_NETNS=/run/netns/x", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p",
	}, environment...)
	command.Stdin = strings.NewReader(stdin)
	var out, failure bytes.Buffer
	command.Stdout, command.Stderr = &out, &failure
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	answer := map[string]any{}
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("no JSON: %q %q: %v", out.String(), failure.String(), err)
		}
	}
	return answer, err == nil
}

// TestErrors: whatever is wrong, the program prints an error of CNI with a code and a sentence.
func TestErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := programs.Put(dir, programs.CNI); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "raven-cni")
	good := `{"cniVersion":"1.1.0","name":"raven","type":"raven-cni","socket":"` + filepath.Join(dir, "none.sock") + `"}`
	for name, test := range map[string]struct {
		stdin, command string
		code           float64
		says           string
	}{
		"empty input":     {"", "ADD", 6, "JSON"},
		"no JSON":         {"hello", "ADD", 6, "invalid"},
		"unknown version": {strings.Replace(good, "1.1.0", "9.9.9", 1), "ADD", 1, "incompatible"},
		"unknown command": {good, "MOVE", 4, "CNI_COMMAND"},
		"no daemon":       {good, "ADD", 11, "raven-node"},
		"no daemon, DEL":  {good, "DEL", 11, "raven-node"},
		"not available":   {good, "STATUS", 50, "raven-node"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, ok := call(t, program, test.stdin, "CNI_COMMAND="+test.command)
			text, _ := answer["msg"].(string)
			details, _ := answer["details"].(string)
			if ok || answer["code"] != test.code || !strings.Contains(text+details, test.says) {
				t.Errorf("succeeds: %v, prints %v, want code %v and %q", ok, answer, test.code, test.says)
			}
		})
	}
	answer, ok := call(t, program, `{"cniVersion":"1.1.0"}`, "CNI_COMMAND=VERSION")
	if list, _ := json.Marshal(answer["supportedVersions"]); !ok || !strings.Contains(string(list), `"1.1.0"`) ||
		!strings.Contains(string(list), `"1.0.0"`) {
		t.Errorf("VERSION: %v", answer)
	}
}

// TestResult: the daemon's result is printed in the version of the configuration, and its error as it is.
func TestResult(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "rc") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := programs.Put(dir, programs.CNI); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var request cniapi.Request
		if err := json.NewDecoder(q.Body).Decode(&request); err != nil || q.URL.Path != cniapi.Path ||
			request.ContainerID != "sandbox-1" || request.IfName != "eth0" {
			t.Errorf("request %+v of %s: %v", request, q.URL, err)
		}
		if request.Command == cniapi.Del {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"code":100,"msg":"refused"}`))
			return
		}
		_, _ = w.Write([]byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"h","mtu":1400},` +
			`{"name":"eth0","sandbox":"/run/netns/x"}],"ips":[{"interface":1,"address":"10.0.0.5/24"}]}`))
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	defer func() { _ = server.Close(); <-served }()
	program := filepath.Join(dir, "raven-cni")
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		conf := `{"cniVersion":"` + version + `","name":"raven","type":"raven-cni","socket":"` + socket + `"}`
		answer, ok := call(t, program, conf, "CNI_COMMAND=ADD")
		if !ok || answer["cniVersion"] != version || len(answer["ips"].([]any)) != 1 {
			t.Errorf("ADD of version %s: %v", version, answer)
		}
		if answer, ok = call(t, program, conf, "CNI_COMMAND=DEL"); ok || answer["code"] != 100.0 ||
			answer["msg"] != "refused" || answer["cniVersion"] != version {
			t.Errorf("DEL of version %s: %v", version, answer)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The bounds of a stop: what raven is told, and when it is killed.
const (
	grace     = 10 * time.Second
	stopBound = 3 * grace
)

// daemon is a running raven.
type daemon struct {
	*harness.Process
	address string // of its status endpoint
	page    string // the URL of its web page
	log     string
	errs    tailBuffer
}

// configure writes a kuryr.conf for the stage and returns the addresses of the status endpoint and of the web page.
func (s *stage) configure(extra string) (address, page string, err error) {
	port, err := freePort()
	if err != nil {
		return "", "", err
	}
	pagePort, err := freePort()
	if err != nil {
		return "", "", err
	}
	conf := fmt.Sprintf(`[DEFAULT]
graceful_shutdown_timeout = %d

[kubernetes]
kubeconfig = %s

[neutron]
cloud = %s
clouds_file = %s

[health_server]
port = %d

[prometheus_exporter]
port = 0

[web]
enabled = true
port = %d

[raven]
runtime_dir = %s
%s`, int(grace.Seconds()), s.kubeconfig(), simcloud.CloudMember, s.clouds(), port, pagePort,
		filepath.Join(s.dir, "run"),
		extra)
	if err := os.WriteFile(s.conf(), []byte(conf), 0o600); err != nil {
		return "", "", fmt.Errorf("writing kuryr.conf: %w", err)
	}
	return onLoopback(port), "http://" + onLoopback(pagePort) + "/", nil
}

func onLoopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// startRaven writes a kuryr.conf, with more lines for [raven], and runs the real raven with it.
func (s *stage) startRaven(program, extra string) (*daemon, error) {
	address, page, err := s.configure(extra)
	if err != nil {
		return nil, err
	}
	d := &daemon{address: address, page: page, log: s.log()}
	args := []string{"run", "--config-file", s.conf(), "--set", "DEFAULT.log_file=" + s.log()}
	cmd := exec.Command(program, args...) //nolint:gosec,noctx // ended by stop, with a signal of its own
	cmd.Env = withoutOverrides(os.Environ())
	cmd.SysProcAttr = childAttributes()
	cmd.Stderr = &d.errs
	if d.Process, err = harness.Start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return d, nil
}

// withoutOverrides drops what would change the configuration from outside.
func withoutOverrides(environ []string) []string {
	var kept []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(name, "OS_"), name == "KUBECONFIG", name == "K8S_API", name == "LOG_LEVEL",
			name == "NOTIFY_SOCKET":
		case name == "SUBNET_POOL", name == "FLANNEL_NET", name == "SERVICE_CLUSTER_IP_RANGE":
		default:
			kept = append(kept, e)
		}
	}
	return kept
}

// stop ends raven as an operator would and waits for it; when hurry is closed it is killed, and its drivers go with it.
func (d *daemon) stop(hurry <-chan struct{}) error {
	if err := d.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping raven: %w", err)
	}
	late := time.NewTimer(stopBound)
	defer late.Stop()
	select {
	case <-d.Ended:
		if d.Err != nil {
			return d.failure("raven did not stop well")
		}
		return nil
	case <-hurry:
		d.Kill()
		return errors.New("raven was killed, as asked")
	case <-late.C:
		d.Kill()
		return d.failure(fmt.Sprintf("raven did not stop within %s and was killed", stopBound))
	}
}

// failure says what became of a raven that has ended, with the end of its log.
func (d *daemon) failure(what string) error {
	text := what
	if d.Err != nil {
		text += " (" + d.Err.Error() + ")"
	}
	if said := strings.TrimSpace(d.errs.String()); said != "" {
		text += ": " + said
	}
	if log := tail(d.log); log != "" {
		text += "\nthe end of its log:\n" + log
	}
	return errors.New(text)
}

// tail returns the last lines of a file, "" without one.
func tail(path string) string {
	const most = 3000
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if len(text) > most {
		text = text[len(text)-most:]
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	return strings.TrimSpace(string(text))
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	const most = 8 << 10
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if len(b.text) > most {
		b.text = append(b.text[:0], b.text[len(b.text)-most:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // a TCP listener has a TCP address
}

// runsRaven gives a command that runs raven the flag that names the program, and finds the program before the command
// runs.
func runsRaven(cmd *cobra.Command, program *string) {
	cmd.Flags().StringVar(program, "raven", "", "the raven `program` (default: the one beside this program)")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		*program, err = ravenProgram(*program)
		return err
	}
}

// ravenProgram returns the raven program: the flag's, or the one beside this program.
func ravenProgram(flag string) (string, error) {
	path := flag
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding the raven program: %w", err)
		}
		path = filepath.Join(filepath.Dir(self), "raven")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the raven program: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no raven program: %w; build it with `make build`, or name it with --raven", err)
	}
	return path, nil
}

// report is what is needed here of raven's /status.
type report struct {
	Ready   bool           `json:"ready"`
	Counts  map[string]int `json:"counts"`
	Drivers []struct {
		Name string `json:"name"`
		PID  int    `json:"pid"`
	} `json:"drivers"`
	Objects []object `json:"objects"`
}

type object struct {
	Driver    string     `json:"driver"`
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	State     string     `json:"state"`
	Since     time.Time  `json:"since"` // of the state
	Deleted   bool       `json:"deleted"`
	Reasons   []string   `json:"reasons"`
	Resources []resource `json:"resources"`
}

type resource struct {
	Kind   string         `json:"kind"`
	Name   string         `json:"name"`
	ID     string         `json:"id"`
	Role   string         `json:"role"`
	Status string         `json:"status"`
	Shared bool           `json:"shared"`
	Attrs  map[string]any `json:"attributes"`
}

// status asks raven how it stands; the filter, such as kind=Pod, narrows the objects.
func (d *daemon) status(ctx context.Context, filter url.Values) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	target := url.URL{Scheme: "http", Host: d.address, Path: "/status", RawQuery: filter.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking raven for its status: it answered %s", response.Status)
	}
	r := &report{}
	if err := json.NewDecoder(response.Body).Decode(r); err != nil {
		return nil, fmt.Errorf("reading raven's status: %w", err)
	}
	return r, nil
}

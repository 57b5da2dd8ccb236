// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Probe says how a component shows that it is ready. Exactly one of URL, Address, Path, Argv, and Text alone is set.
type Probe struct {
	URL string `json:"url,omitempty"` // answers below 400
	// for an https URL: the file of the authority; empty: any certificate will do
	CA      string   `json:"ca,omitempty"`
	Cert    string   `json:"cert,omitempty"`    // the file of the client's certificate, with Key
	Key     string   `json:"key,omitempty"`     //
	Address string   `json:"address,omitempty"` // a TCP address that takes connections
	Path    string   `json:"path,omitempty"`    // is there; Component.Clean has it, or a killed server's would count
	Argv    []string `json:"argv,omitempty"`    // exits with 0, and prints Text if there is one
	Text    string   `json:"text,omitempty"`    // alone: appears in the log after the start
}

// attempt bounds one look; a server that hangs is asked again.
const attempt = 10 * time.Second

// tail is how much of a log an error shows.
const tail = 25

// awaitReady waits until the component is ready, dies, or ctx ends.
func (s *Stack) awaitReady(ctx context.Context, c Component) error {
	last := errors.New("not looked at")
	died := false
	// What answers for one that has died is another's server.
	err := poll(ctx, func() bool {
		if died = !s.process(c.Name).alive(); died {
			return true
		}
		last = s.look(ctx, c)
		return last == nil
	})
	switch {
	case died:
		return fmt.Errorf("%s ended instead of becoming ready\n%s", c.Name, Tail(c.Log, tail))
	case err != nil:
		return fmt.Errorf("%s is not ready (%w): %w\n%s", c.Name, last, err, Tail(c.Log, tail))
	}
	return nil
}

// Ready says what a component lacks to be ready, or nil.
func (s *Stack) Ready(ctx context.Context, name string) error {
	c, err := s.Component(name)
	if err != nil {
		return err
	}
	if !s.process(name).alive() {
		return fmt.Errorf("%s does not run", name)
	}
	return s.look(ctx, c)
}

func (s *Stack) look(ctx context.Context, c Component) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	p := c.Ready
	switch {
	case p.URL != "":
		return p.get(ctx)
	case p.Address != "":
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Address)
		if err != nil {
			return err
		}
		return connection.Close()
	case p.Path != "":
		_, err := os.Stat(p.Path)
		return err
	case len(p.Argv) > 0:
		out, err := s.Run(ctx, p.Argv...)
		if err != nil {
			return err
		}
		if !strings.Contains(out, p.Text) {
			return fmt.Errorf("%s answers %q", p.Argv[0], strings.TrimSpace(out))
		}
		return nil
	default:
		content, err := os.ReadFile(c.Log)
		if err != nil {
			return err
		}
		if !bytes.Contains(content[min(s.process(c.Name).from, int64(len(content))):], []byte(p.Text)) {
			return fmt.Errorf("its log lacks %q", p.Text)
		}
		return nil
	}
}

func (p Probe) get(ctx context.Context) error {
	config := &tls.Config{InsecureSkipVerify: p.CA == ""} // a server on loopback with a certificate of its own making
	if p.CA != "" {
		ca, err := os.ReadFile(p.CA)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(ca)
	}
	if p.Cert != "" {
		pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		return fmt.Errorf("%s answers %s: %.200s", p.URL, response.Status, body)
	}
	return nil
}

// Run runs a program with the environment of the stack's servers, and gives what it printed. The error has the rest.
func (s *Stack) Run(ctx context.Context, argv ...string) (string, error) {
	return s.run(ctx, "", argv...)
}

func (s *Stack) run(ctx context.Context, input string, argv ...string) (string, error) {
	command := exec.CommandContext(ctx, programPath(argv[0]), argv[1:]...)
	command.Env = s.environment()
	command.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// OVN runs ovn-nbctl on the northbound database: OVN(ctx, "--bare", "--columns=up", "list", "Logical_Switch_Port", id).
func (s *Stack) OVN(ctx context.Context, args ...string) (string, error) {
	return s.Run(ctx, append([]string{"ovn-nbctl", "--timeout=20", "--db=" + s.state.Network.OVNNorth}, args...)...)
}

// OVS runs ovs-vsctl on Open vSwitch's database.
func (s *Stack) OVS(ctx context.Context, args ...string) (string, error) {
	return s.Run(ctx, append([]string{"ovs-vsctl", "--timeout=20", "--db=" + s.state.Network.OVS}, args...)...)
}

// Tail is the end of a file, for a person.
func Tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	all = slices.DeleteFunc(all, func(line string) bool { return line == "" })
	all = all[max(0, len(all)-lines):]
	return "the end of " + path + ":\n  " + strings.Join(all, "\n  ")
}

// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/kuryr/raven/test/harness"
)

// raven is a running `raven run`.
type raven struct {
	*harness.Process
	name string
	rig  *rig
	log  *harness.Buffer
}

// start runs the daemon with the rig's kuryr.conf.
func (r *rig) start(args ...string) *raven {
	r.t.Helper()
	p := &raven{name: "raven run", rig: r, log: &harness.Buffer{}}
	cmd := r.command(context.Background(), append([]string{"run", "--config-file", r.configure()}, args...)...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	var err error
	if p.Process, err = harness.Start(cmd); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.runs = append(r.runs, p)
	r.mu.Unlock()
	return p
}

// command is a raven in an environment that sets nothing of its configuration.
func (r *rig) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := harness.Command(ctx, r.path("bin/raven"), r.dir, r.env, args...)
	if r.tty != nil { // it leads a session of that terminal, as when a user starts it by hand
		cmd.Stdin = r.tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	}
	return cmd
}

// result is what a command that ended came to.
type result struct {
	status      int
	out, errors string
}

// raven runs a command to its end.
func (r *rig) raven(args ...string) result {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := r.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("raven %s: %v", strings.Join(args, " "), err)
	}
	if ctx.Err() != nil {
		r.t.Errorf("raven %s did not end within %s", strings.Join(args, " "), patience)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func (p *raven) signal(s syscall.Signal) {
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.rig.t.Errorf("signalling raven: %v", err)
	}
}

// end waits for the end and returns the exit status.
func (p *raven) end() int {
	p.rig.t.Helper()
	select {
	case <-p.Ended:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.rig.t.Fatalf("raven has not ended within %s", patience)
		return -1
	}
}

// stop ends raven as an operator does.
func (p *raven) stop() {
	p.rig.t.Helper()
	p.signal(syscall.SIGTERM)
	if status := p.end(); status != 0 {
		p.rig.t.Errorf("raven stopped with exit status %d", status)
	}
}

// tail is the end of the log.
func (p *raven) tail() string {
	text := p.log.String()
	if len(text) > 6000 {
		text = "…" + text[len(text)-6000:]
	}
	return text
}

// logged waits for a line in the log.
func (p *raven) logged(pattern string) {
	p.rig.t.Helper()
	expression := regexp.MustCompile(pattern)
	must(p.rig.t, "a line that matches "+pattern, func() string {
		if expression.MatchString(p.log.String()) {
			return ""
		}
		return "there is none"
	})
}

var addressLine = regexp.MustCompile(`serving health and status.*?address=(\S+)`)

// address is where the daemon serves its status, "" while it does not yet.
func (p *raven) address() string {
	if m := addressLine.FindStringSubmatch(p.log.String()); m != nil {
		return m[1]
	}
	return ""
}

// status is what is needed here of /status.
type status struct {
	Ready  bool `json:"ready"`
	Leader *struct {
		Leading  bool   `json:"leading"`
		Identity string `json:"identity"`
		Holder   string `json:"holder"`
		Problem  string `json:"problem"`
	} `json:"leader"`
	Counts  map[string]int `json:"counts"`
	Drivers []struct {
		Name     string `json:"name"`
		Version  string `json:"version"`
		PID      int    `json:"pid"`
		State    string `json:"state"`
		Restarts int    `json:"restarts"`
		Guard    *struct {
			Held    int `json:"held"`
			Allowed int `json:"allowed"`
		} `json:"guard"`
	} `json:"drivers"`
	Handover struct {
		Waiting int `json:"waiting"`
	} `json:"handover"`
	Objects []struct {
		Driver    string   `json:"driver"`
		Kind      string   `json:"kind"`
		Namespace string   `json:"namespace"`
		Name      string   `json:"name"`
		State     string   `json:"state"`
		Deleted   bool     `json:"deleted"`
		Reasons   []string `json:"reasons"`
	} `json:"objects"`
}

// status asks the daemon how it stands.
func (p *raven) status() (*status, error) {
	address := p.address()
	if address == "" {
		return nil, errors.New("it serves no status yet")
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address + "/status")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	s := &status{}
	return s, json.NewDecoder(response.Body).Decode(s)
}

// plugin returns the process of a driver, 0 while there is none.
func (p *raven) plugin(name string) int {
	s, err := p.status()
	if err != nil {
		return 0
	}
	for _, d := range s.Drivers {
		if d.Name == name {
			return d.PID
		}
	}
	return 0
}

// settled says what is still under way; "" where every object is done.
func (p *raven) settled() string {
	if !p.Running() {
		return "raven has ended: " + p.tail()
	}
	s, err := p.status()
	if err != nil {
		return err.Error()
	}
	if s.Leader != nil && !s.Leader.Leading {
		return "it stands by, ready as it is"
	}
	if !s.Ready {
		return "not every object has been answered"
	}
	for _, o := range s.Objects {
		if o.State != "done" || o.Deleted {
			return fmt.Sprintf("%s %s/%s is %s (deleted: %t): %s", o.Kind, o.Namespace, o.Name, o.State, o.Deleted,
				strings.Join(o.Reasons, "; "))
		}
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Down stops everything of the stack in dir, and removes all but its artifacts and those of the stack before. It can
// be called again, and on what an Up that failed left behind. A folder without a stack is no error. The error names
// what cannot be removed: the stack is still there then. It names too what had to be searched for and killed, because
// a server left it behind: then the stack is gone all the same.
func Down(ctx context.Context, dir string) error {
	s, err := Open(dir)
	if err != nil {
		if _, missing := os.Stat(filepath.Join(dir, stateFile)); errors.Is(missing, os.ErrNotExist) {
			return nil
		}
		return err
	}
	errs := []error{s.removeNodes(ctx), s.stopAll(ctx), s.restoreSettings()}
	left := s.leftProcesses()
	var strayed error
	if len(left) > 0 {
		strayed = fmt.Errorf("these outlived who started them, and were killed: %s", names(left))
	}
	for _, p := range left {
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // looked for again below
	}
	if err := poll(ctx, func() bool { return len(s.leftProcesses()) == 0 }); err != nil {
		errs = append(errs, fmt.Errorf("still running: %s", names(s.leftProcesses())))
	}
	errs = append(errs, s.removeNetwork(ctx))
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, strayed)
	}
	return errors.Join(s.removeFiles(), strayed)
}

// stopAll stops the servers: those that others need after those.
func (s *Stack) stopAll(ctx context.Context) error {
	steps := make([]step, 0, len(s.state.Components))
	for _, c := range s.state.Components {
		var users []string
		for _, other := range s.state.Components {
			if slices.Contains(other.After, c.Name) {
				users = append(users, other.Name)
			}
		}
		steps = append(steps, step{name: c.Name, after: users, do: func(ctx context.Context) error {
			return s.Stop(ctx, c.Name, stopPatience)
		}})
	}
	return runSteps(ctx, steps, discard{})
}

// stopPatience is how long a server has for a clean end. All that it could save is removed next.
const stopPatience = 3 * time.Second

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// leftProcesses lists what still runs with the stack's mark in its environment. The program that asks is none of them.
func (s *Stack) leftProcesses() []stat { return s.marked(s.Mark()) }

// marked lists what runs with the stack's mark and another variable in its environment.
func (s *Stack) marked(variable string) []stat {
	var left []stat
	for _, p := range processes() {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if err != nil || p.pid == os.Getpid() || p.state == "Z" || p.state == "X" {
			continue
		}
		variables := strings.Split(string(environment), "\x00")
		if slices.Contains(variables, s.Mark()) && slices.Contains(variables, variable) {
			left = append(left, p)
		}
	}
	return left
}

func names(processes []stat) string {
	all := make([]string, 0, len(processes))
	for _, p := range processes {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)) // gone: then its id says enough
		all = append(all, fmt.Sprintf("%d %.80s", p.pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	return strings.Join(all, ", ")
}

// removeNetwork removes the network namespaces of the stack, and with them all devices in them; and links that tests
// made outside of them.
func (s *Stack) removeNetwork(ctx context.Context) error {
	var errs []error
	prefix := s.state.Network.Prefix
	spaces, _ := filepath.Glob("/run/netns/" + prefix + "*") // the pattern is right
	for _, path := range spaces {
		_, err := s.Run(ctx, "ip", "netns", "del", filepath.Base(path))
		errs = append(errs, err)
	}
	links, _ := filepath.Glob("/sys/class/net/" + prefix + "*")
	for _, path := range links {
		// One end of a pair takes the other with it.
		if _, err := s.Run(ctx, "ip", "link", "del", filepath.Base(path)); err != nil {
			if _, err := os.Stat(path); err == nil {
				errs = append(errs, fmt.Errorf("link %s cannot be removed", filepath.Base(path)))
			}
		}
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

// Package system_test runs the programs as they are built, raven and its drivers, against the simulated cluster and
// cloud. It must never reach into them otherwise than an operator, a cluster and a cloud can: by files, signals,
// requests and answers.
package system_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	testprograms "github.com/kuryr/raven/test/programs"
)

// programs is the folder with the built programs, set by TestMain. Each rig has links of its own to them, so that its
// processes can be told from those of the others.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// Tests wait for processes and simulations more than they work.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, "system tests:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "rs") // short: sockets are below it
	if err != nil {
		fmt.Fprintln(os.Stderr, "system tests:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if programs, err = build(dir); err != nil {
		fmt.Fprintln(os.Stderr, "system tests:", err)
		return 1
	}
	status := m.Run()
	if left := processesBelow(dir); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "system tests: processes were left behind:", strings.Join(left, ", "))
		return 1
	}
	return status
}

// build puts all programs into a folder. They are the ones that users get, without the race detector, which would
// triple the time.
func build(dir string) (string, error) {
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return "", err
	}
	wanted := append(testprograms.Shipped(), testprograms.Flat, testprograms.Hostile, testprograms.EmptyPod,
		testprograms.Protocol2)
	return bin, testprograms.Put(bin, wanted...)
}

// processesBelow lists the processes whose executable is below a folder.
func processesBelow(dir string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	var found []string
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, dir+"/") {
			found = append(found, filepath.Base(filepath.Dir(link))+" "+exe)
		}
	}
	return found
}

// SPDX-License-Identifier: Apache-2.0

package etc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/etc"
	"github.com/kuryr/raven/service"
)

// exposure is the most that `systemd-analyze security` may give the unit: 0 is nothing, 10 everything. What is left
// of it is that Raven talks to the network and that drivers listen on local sockets.
const exposure = 1.5

func analyze(t *testing.T, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze on this machine")
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// unitFile writes the unit with a program that there is on every machine.
func unitFile(t *testing.T) string {
	t.Helper()
	return fileOf(t, "raven.service", etc.Unit)
}

func fileOf(t *testing.T, name, unit string) string {
	t.Helper()
	text := strings.Replace(unit, "ExecStart=/usr/bin/raven ", "ExecStart=/bin/true ", 1)
	if text == unit {
		t.Fatal("the unit does not start /usr/bin/raven")
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnitsAreValid(t *testing.T) {
	for name, unit := range map[string]string{"raven.service": etc.Unit, "raven-node.service": etc.NodeUnit} {
		out := analyze(t, "verify", "--man=no", fileOf(t, name, unit))
		for line := range strings.Lines(out) {
			if strings.Contains(line, "raven") { // it also speaks of other units of the machine
				t.Error(line)
			}
		}
	}
}

// The daemon of a node is root who makes interfaces, and not much more.
func TestNodeUnitIsConfined(t *testing.T) {
	const most = 4.0
	out := analyze(t, "security", "--offline=true", "--no-pager", fileOf(t, "raven-node.service", etc.NodeUnit))
	found := regexp.MustCompile(`Overall exposure level for raven-node.service: ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no exposure in:\n%s", out)
	}
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > most {
		t.Errorf("the exposure is %s, more than %.1f:\n%s", found[1], most, out)
	}
}

func TestUnitIsConfined(t *testing.T) {
	out := analyze(t, "security", "--offline=true", "--no-pager", unitFile(t))
	found := regexp.MustCompile(`Overall exposure level for raven.service: ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no exposure in:\n%s", out)
	}
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > exposure {
		t.Errorf("the exposure is %s, more than %.1f:\n%s", found[1], exposure, out)
	}
}

// systemd must not kill what still stops by its own rules.
func TestUnitWaitsLongerThanRaven(t *testing.T) {
	found := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(etc.Unit)
	if found == nil {
		t.Fatal("no TimeoutStopSec in seconds")
	}
	seconds, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	const ending = 10 * time.Second // of drivers, when the time for work in flight is over
	for _, o := range service.Options() {
		if o.Name != "graceful_shutdown_timeout" {
			continue
		}
		grace, err := strconv.Atoi(o.Default)
		if err != nil {
			t.Fatal(err)
		}
		if least := time.Duration(grace)*time.Second + ending; time.Duration(seconds)*time.Second < least {
			t.Errorf("TimeoutStopSec=%d is less than %s", seconds, least)
		}
	}
}

// What an operator asked for by two signals is no failure after which it is started again; a wrong command line is none
// that another try fixes.
func TestUnitKnowsTheExitStatuses(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		status := service.ExitStatus(&service.ForcedError{Signal: s})
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^SuccessExitStatus=(.* )?%d( |$)`, status)).MatchString(etc.Unit) {
			t.Errorf("after two %s the exit status is %d, which is a failure to the unit", s, status)
		}
	}
	if !strings.Contains(etc.Unit, "\nRestart=on-failure\n") ||
		!strings.Contains(etc.Unit, "\nRestartPreventExitStatus=64\n") {
		t.Error("it is not started again after a failure, or is after a wrong command line")
	}
}

func TestUserOfTheUnit(t *testing.T) {
	if !strings.Contains(etc.Unit, "\nUser=raven\n") || !regexp.MustCompile(`(?m)^u raven `).MatchString(etc.Sysusers) {
		t.Error("the unit's user is not the one that sysusers.d declares")
	}
}

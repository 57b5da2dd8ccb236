// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/test/harness"
)

// TestGiantAnswerIsOfOneObject: whoever serves by the SDK cannot send one.
func TestGiantAnswerIsOfOneObject(t *testing.T) {
	c := config(t, "", io.Discard)
	c.Timeouts.Call = time.Minute
	p := launch(t, c)
	var own *host.Error
	if _, err := order(t, p, "giant", ""); !errors.As(err, &own) {
		t.Errorf("got %v", err)
	}
	if text, err := order(t, p, "nothing", ""); err != nil || text != "got nothing" || p.Status().Restarts != 0 {
		t.Errorf("afterwards: %s, %v, %+v", text, err, p.Status())
	}
}

// TestGiantMessageIsNotRead: who speaks the protocol by hand sends one all the same. Its core does not take it, and
// starts it anew.
func TestGiantMessageIsNotRead(t *testing.T) {
	c := config(t, "", io.Discard, "giant")
	c.Timeouts.Call = time.Minute
	p := launch(t, c)
	ask := func(name string) error {
		_, err := p.Translate(t.Context(),
			drivers.Object{Watch: "pods", Raw: []byte(`{"metadata":{"name":"` + name + `"}}`)}, drivers.NewNeeds(nil))
		return err
	}
	if err := ask("giant"); !errors.Is(err, host.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	eventually(t, "another life", func() bool { return p.Status().Restarts == 1 && ask("other") == nil })
	if s := p.Status(); !strings.Contains(s.LastExit, "larger than max") {
		t.Errorf("it was lost for another reason: %+v", s)
	}
}

// TestExaggeratedAnswersAreErrorsOfTheirObjects: resources in a chain, and little bytes that take much memory.
func TestExaggeratedAnswersAreErrorsOfTheirObjects(t *testing.T) {
	for lie, says := range map[string]string{
		"chain": "there are 5000 resources, more than 4096", "crowd": "more than 524288 elements",
		"long-result": "more than 8388608",
	} {
		t.Run(lie, func(t *testing.T) {
			c := config(t, "", io.Discard, lie)
			c.Timeouts.Call = time.Minute
			p := launch(t, c)
			ask := func(name string) (drivers.Set, error) {
				raw := []byte(`{"metadata":{"name":"` + name + `"}}`)
				return p.Translate(t.Context(), drivers.Object{Watch: "pods", Raw: raw}, drivers.NewNeeds(nil))
			}
			var own *host.Error
			if _, err := ask(lie); !errors.As(err, &own) || !strings.Contains(own.Message, says) {
				t.Errorf("got %v", err)
			}
			if set, err := ask("other"); err != nil || len(set.Resources) != 0 {
				t.Errorf("another object: %v, %v", set, err)
			}
			if s := p.Status(); s.Restarts != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	c := config(t, "", io.Discard)
	c.Timeouts.Call = time.Minute
	p := launch(t, c)
	if text, err := order(t, p, "memory", ""); !errors.Is(err, host.ErrUnavailable) {
		t.Errorf("4 GiB under a bound of %d MiB: %s, %v", memoryLimit>>20, text, err)
	}
	eventually(t, "another life", func() bool {
		text, err := order(t, p, "nothing", "")
		return err == nil && text == "got nothing"
	})
}

// TestSpinningDriverLeavesOthersTheirShare: beside one that keeps every processor busy, another is answered, started
// and stopped as ever.
func TestSpinningDriverLeavesOthersTheirShare(t *testing.T) {
	spinning := launch(t, config(t, "", io.Discard))
	text, err := order(t, spinning, "spin", "")
	if err != nil {
		t.Fatal(err)
	}
	// 20 less how nice this process is; it may be nicer than a driver has to be
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if want := fmt.Sprintf(" of nice %d", max(5, 20-own)); err != nil || !strings.HasSuffix(text, want) {
		t.Errorf("it %s, and is to give way%s (%v)", text, want, err)
	}
	other := launch(t, config(t, "", io.Discard))
	for range 100 {
		if text, err := order(t, other, "nothing", ""); err != nil || text != "got nothing" {
			t.Errorf("%s, %v", text, err)
		}
	}
	if s := other.Status(); s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLitterIsSwept: who fills the folder of its socket is ended, and with it goes what it made there.
func TestLitterIsSwept(t *testing.T) {
	c := config(t, "", io.Discard)
	c.Timeouts.Ping = time.Second
	p := launch(t, c)
	// It may be ended before it has answered.
	if text, err := order(t, p, "litter", ""); err != nil && !errors.Is(err, drivers.ErrUnavailable) {
		t.Fatalf("%s, %v", text, err)
	}
	eventually(t, "another life", func() bool { s := p.Status(); return s.Restarts == 1 && s.State == host.Ready })
	if s := p.Status(); !strings.Contains(s.LastExit, "fills its folder") {
		t.Errorf("%+v", s)
	}
	left, err := filepath.Glob(filepath.Join(c.RuntimeDir, "*", "*", "litter*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

func TestFloodDoesNotFillTheLog(t *testing.T) {
	var log harness.Buffer
	c := config(t, "", &log)
	c.Timeouts.Call = time.Minute
	p := launch(t, c)
	if text, err := order(t, p, "flood", ""); err != nil || !strings.HasPrefix(text, "got ") {
		t.Fatalf("%s, %v", text, err)
	}
	if text, err := order(t, p, "nothing", ""); err != nil {
		t.Errorf("afterwards: %s, %v", text, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	text := log.String()
	if len(text) > 20<<20 || !strings.Contains(text, "dropped") {
		t.Errorf("%d bytes of log, of 50 MB written", len(text))
	}
}

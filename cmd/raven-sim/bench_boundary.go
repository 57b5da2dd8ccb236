// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/service/host"
)

const (
	smallObject, largeObject = 1 << 10, 30 << 10
	// boundaryCalls is how often each way is measured, boundaryTogether how many calls come at a time where they are
	// batched.
	boundaryCalls, boundaryTogether = 3000, 128
	replayObjects, replayTogether   = 10_000, 1024
	boundaryMemory                  = 512 << 20
)

// boundary measures what it costs that a driver is a process of its own: the pod driver, called here and in its
// confined process.
func (b *bench) boundary(ctx context.Context, out *scenarioReport) (err error) {
	direct := pod.New()
	values, err := drivers.DefaultValues(direct.Info().Options, nil)
	if err != nil {
		return err
	}
	if err := direct.Configure(ctx, values); err != nil {
		return err
	}
	sandbox, err := host.NewSandbox(host.Policy{Mode: host.SandboxAuto, Self: b.options.raven, Memory: boundaryMemory})
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "raven-bench-")
	if err != nil {
		return fmt.Errorf("making a runtime folder: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // temporary
	began := time.Now()
	process, err := host.Launch(ctx, host.Config{
		Path: filepath.Join(filepath.Dir(b.options.raven), "raven-driver-pod"), Values: values, RuntimeDir: folder,
		Sandbox: sandbox,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.Stop(context.WithoutCancel(ctx))) }()
	out.addTime("start, confined and configured", time.Since(began), "", "")
	for _, size := range []int{smallObject, largeObject} {
		objects, err := podObjects(boundaryCalls, size)
		if err != nil {
			return err
		}
		for _, way := range []struct {
			name     string
			driver   drivers.Driver
			together int
		}{
			{"direct call", direct, 1},
			{"process, one at a time", process, 1},
			{fmt.Sprintf("process, %d at a time", boundaryTogether), process, boundaryTogether},
		} {
			t, err := timeCalls(ctx, way.driver, objects, way.together)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%d KB, %s", size>>10, way.name)
			out.add(measure{
				Name: name, Value: float64(len(objects)) / t.whole.Seconds(), Unit: "translations/s",
				Note: fmt.Sprintf(
					"p50 %s, p99 %s", t.at(50), t.at(99)),
			})
		}
	}
	return b.replayAfterRestart(ctx, out, process)
}

func (b *bench) replayAfterRestart(ctx context.Context, out *scenarioReport, process *host.Plugin) error {
	objects, err := podObjects(replayObjects, smallObject)
	if err != nil {
		return err
	}
	if _, err := timeCalls(ctx, process, objects, replayTogether); err != nil {
		return err
	}
	began := time.Now()
	if err := process.Restart(ctx); err != nil {
		return err
	}
	restarted := time.Since(began)
	if _, err := timeCalls(ctx, process, objects, replayTogether); err != nil {
		return err
	}
	out.addTime(fmt.Sprintf("restart and replay of %d objects", replayObjects), time.Since(began), "under 2 s",
		fmt.Sprintf("the restart %s", rounded(restarted)))
	for _, field := range []struct{ name, shown string }{
		{"VmRSS", "memory of the driver after it"}, {"VmHWM", "memory of the driver at most"},
	} {
		if kib, ok := statusKiB(process.Status().PID, field.name); ok {
			out.add(measure{Name: field.shown, Value: float64(kib) / 1024, Unit: "MiB"})
		}
	}
	return nil
}

func statusKiB(pid int, field string) (int, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib := 0
			_, err := fmt.Sscan(rest, &kib)
			return kib, err == nil
		}
	}
	return 0, false
}

// podObjects makes pods of about so many bytes each.
func podObjects(count, size int) ([]drivers.Object, error) {
	objects := make([]drivers.Object, 0, count)
	for i := range count {
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{
				"name": fmt.Sprintf("p%d", i), "namespace": "shop", "uid": fmt.Sprintf("00000000-0000-0000-0000-%012d", i),
				"labels":      map[string]string{"app": "web"},
				"annotations": map[string]string{"filler": strings.Repeat("x", max(0, size-400))},
			},
			"spec": map[string]any{"nodeName": "node-1"}, "status": map[string]any{"phase": "Pending"},
		})
		if err != nil {
			return nil, fmt.Errorf("encoding a pod: %w", err)
		}
		objects = append(objects, drivers.Object{Watch: pod.New().Watches()[0].Name, Raw: raw})
	}
	return objects, nil
}

// callTimes are how long calls took, in order, and all of them together.
type callTimes struct {
	each  []time.Duration
	whole time.Duration
}

func (t callTimes) at(percent int) time.Duration { return rounded(t.each[(len(t.each)-1)*percent/100]) }

func rounded(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

// timeCalls translates every object once, so many at a time.
func timeCalls(ctx context.Context, driver drivers.Driver, objects []drivers.Object, together int) (callTimes, error) {
	t := callTimes{each: make([]time.Duration, len(objects))}
	errs := make([]error, together)
	var next atomic.Int64
	var callers sync.WaitGroup
	began := time.Now()
	for caller := range together {
		callers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(objects)) && errs[caller] == nil; i = next.Add(1) - 1 {
				sent := time.Now()
				_, errs[caller] = driver.Translate(ctx, objects[i], drivers.NewNeeds(nil))
				t.each[i] = time.Since(sent)
			}
		})
	}
	callers.Wait()
	t.whole = time.Since(began)
	slices.Sort(t.each)
	return t, errors.Join(errs...)
}

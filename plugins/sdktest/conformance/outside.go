// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
)

// seen is what is observed of a process from outside.
type seen struct {
	files    map[string]bool // that are open: paths, and "socket of the network"
	children int
	written  int64 // bytes to storage
}

func observe(pid int) (seen, error) {
	out := seen{files: map[string]bool{}}
	root := filepath.Join("/proc", strconv.Itoa(pid))
	entries, err := os.ReadDir(filepath.Join(root, "fd"))
	if err != nil {
		return out, err
	}
	network := inodes(root)
	for _, entry := range entries {
		link, err := os.Readlink(filepath.Join(root, "fd", entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		switch inode, socket := strings.CutPrefix(link, "socket:["); {
		case socket && network[strings.TrimSuffix(inode, "]")]:
			out.files["a socket of the network"] = true
		case strings.HasPrefix(link, "/") && !strings.HasPrefix(link, "/dev/"):
			out.files[link] = true
		}
	}
	tasks, _ := filepath.Glob(filepath.Join(root, "task", "*", "children"))
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		out.children += len(strings.Fields(string(text)))
	}
	out.written = numberIn(filepath.Join(root, "io"), "write_bytes:")
	return out, nil
}

// inodes are those of the sockets of the network that the process could have.
func inodes(root string) map[string]bool {
	out := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		text, _ := os.ReadFile(filepath.Join(root, "net", table))
		for _, line := range strings.Split(string(text), "\n")[1:] {
			if fields := strings.Fields(line); len(fields) > 9 {
				out[fields[9]] = true
			}
		}
	}
	return out
}

// numberIn returns the number behind a word in a file of lines, 0 where there is none.
func numberIn(path, word string) int64 {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, word); ok {
			number, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return number
		}
	}
	return 0
}

// purity observes the process while it translates.
func (s *suite) purity(ctx context.Context, f *finding) {
	if s.target.PID == 0 {
		f.skip("it runs inside of the test, where this cannot be seen")
		return
	}
	before := s.atFirst
	if _, err := observe(s.target.PID); err != nil {
		f.skip("this system does not show processes in /proc: %v", err)
		return
	}
	if before.files["a socket of the network"] {
		f.warn("it has a socket of the network open, which a driver does not need")
	}
	found := map[string]bool{}
	for range 40 {
		if _, err := s.all(ctx, s.many(64), false); err != nil {
			f.fail("%v", err)
			return
		}
		now, err := observe(s.target.PID)
		if err != nil {
			f.fail("the process is gone: %v", err)
			return
		}
		for file := range now.files {
			if !before.files[file] {
				found["it opens "+file] = true
			}
		}
		if now.children > before.children {
			found["it starts other processes"] = true
		}
		if now.written > before.written {
			found["it writes to storage"] = true
		}
	}
	for _, text := range slices.Sorted(maps.Keys(found)) {
		f.fail("%s", text)
	}
}

// Each quarter of the load has leastLoad objects, unless the driver needs more than longestLoad for them: what is kept
// of fewer would not be seen.
const (
	leastLoad   = 2000
	longestLoad = 15 * time.Second
)

// memory sends ever new objects and reads the process's memory after each quarter of the time.
func (s *suite) memory(ctx context.Context, f *finding) {
	if s.target.PID == 0 {
		f.skip("it runs inside of the test, where this cannot be seen")
		return
	}
	if len(s.sources) == 0 {
		f.skip("there is no object to send")
		return
	}
	status := filepath.Join("/proc", strconv.Itoa(s.target.PID), "status")
	if numberIn(status, "VmRSS:") == 0 {
		f.skip("this system does not show processes in /proc")
		return
	}
	sent, number := 0, 0
	load := func(during time.Duration) error {
		began, first := time.Now(), number
		for time.Since(began) < during || (number-first < leastLoad && time.Since(began) < longestLoad) {
			items := s.fresh(&number, 64)
			for _, item := range items {
				sent += proto.Size(item)
			}
			if _, err := s.all(ctx, items, false); err != nil {
				return err
			}
		}
		return nil
	}
	// The heap grows to its size first, that of a garbage collector above all.
	if err := load(s.config.Load / 3); err != nil {
		f.fail("%v", err)
		return
	}
	sent = 0
	sizes := []int64{numberIn(status, "VmRSS:") << 10}
	for range 4 {
		if err := load(s.config.Load / 6); err != nil {
			f.fail("%v", err)
			return
		}
		sizes = append(sizes, numberIn(status, "VmRSS:")<<10)
	}
	grown, steady := sizes[4]-sizes[0], slices.IsSorted(sizes)
	allowed := max(int64(sent)/4, 8<<20)
	f.say("%d MiB at first, %d MiB after %d objects of %d MiB", sizes[0]>>20, sizes[4]>>20, number, sent>>20)
	if steady && grown > allowed {
		f.fail("it grows all the time: it seems to keep what it has seen")
	}
}

// fresh makes items of objects that were never seen before, of about 4 KiB each.
func (s *suite) fresh(number *int, count int) []*ravenv1.TranslateItem {
	items := make([]*ravenv1.TranslateItem, 0, count)
	for range count {
		*number++
		i := *number % len(s.sources)
		one := s.sources[i]
		raw, err := json.Marshal(one.object)
		var object map[string]any
		if err != nil || json.Unmarshal(raw, &object) != nil {
			continue
		}
		metadata, _ := object["metadata"].(map[string]any)
		metadata["name"] = fmt.Sprintf("object-%d", *number)
		metadata["uid"] = fmt.Sprintf("00000000-0000-4000-9000-%012d", *number)
		metadata["annotations"] = map[string]any{
			"filler": strings.Repeat(strconv.Itoa(*number)+" ", 4096/(len(strconv.Itoa(*number))+1)),
		}
		raw, err = json.Marshal(object)
		if err != nil {
			continue
		}
		items = append(items, wire.NewItem(drivers.Object{Watch: one.watch.Name, Raw: raw}, s.answersTo(i), 1))
	}
	return items
}

const (
	orphanTime = 5 * time.Second
	clockStep  = 1100 * time.Millisecond // a driver that reads the clock shows it after a second at the latest
)

// processes asks another process, of another place and time, and then closes Raven's end of its lifeline.
func (s *suite) processes(ctx context.Context, f *finding) {
	if s.target.PID == 0 {
		f.skip("it runs inside of the test, in one process")
		return
	}
	target, err := s.config.Start(ctx, "TZ=Pacific/Kiritimati", "LANG=tr_TR.UTF-8", "LC_ALL=C", "GOMAXPROCS=1",
		"PYTHONHASHSEED=7")
	if err != nil {
		f.fail("started a second time: %v", err)
		return
	}
	defer target.Stop()
	request, err := wire.ValuesToProto(s.values)
	if err != nil {
		f.fail("%v", err)
		return
	}
	bounded, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	if _, err := ravenv1.NewDriverServiceClient(target.Conn).Configure(bounded, request); err != nil {
		f.fail("configuring it: %v", err)
		return
	}
	other, err := open(ctx, target.Conn)
	if err != nil {
		f.fail("opening its stream: %v", err)
		return
	}
	mine := s.session
	s.session = other
	for i := range s.sources {
		s.compare(ctx, f, i, "in another process")
	}
	s.session = mine
	if rest := time.Until(s.began.Add(clockStep)); rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	for i := range s.sources {
		s.compare(ctx, f, i, fmt.Sprintf("%s later", time.Since(s.began).Round(time.Second)))
	}
	if !target.Orphan(orphanTime) {
		f.fail("Raven's death did not end it within %s: it must end when file descriptor RAVEN_LIFELINE_FD does", orphanTime)
	}
	other.close()
}

// drain ends it as Raven does.
func (s *suite) drain(ctx context.Context, f *finding) {
	bounded, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	if _, err := ravenv1.NewDriverServiceClient(s.target.Conn).Drain(bounded, &ravenv1.DrainRequest{}); err != nil {
		f.fail("Drain: %v", err)
	} else if results, err := s.all(ctx, s.many(4), false); err != nil {
		f.fail("items that come after Drain get no result: %v", err)
	} else {
		for _, result := range results {
			if result.GetError().GetCode() != ravenv1.ErrorCode_ERROR_CODE_CANCELLED {
				f.fail("an item that comes after Drain must be answered with ERROR_CODE_CANCELLED")
				break
			}
		}
	}
	s.session.close()
	orderly := s.target.Stop()
	s.target = nil
	if !orderly {
		f.warn("it did not end within two seconds of being asked to, and was killed")
	}
}

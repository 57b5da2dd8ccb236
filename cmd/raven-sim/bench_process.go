// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// machineFacts say what was measured on.
type machineFacts struct {
	Cores  int    `json:"cores"`
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
	System string `json:"system"`
	Go     string `json:"go"`
	Load   string `json:"load"`
}

func machine() machineFacts {
	m := machineFacts{
		Cores: runtime.NumCPU(), CPU: runtime.GOARCH, Memory: "unknown", System: runtime.GOOS, Go: runtime.Version(),
		Load: "unknown",
	}
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		m.CPU = model
	}
	if kib, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		m.Memory = fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20))
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System = "Linux " + strings.TrimSpace(string(release))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	return m
}

// field returns what follows "name:" in a file of /proc, "" without one.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// process is one of the measured ones.
type process struct {
	name string
	pid  int
}

// memory returns a process's resident memory and the most that it ever was, in MiB; zero where the system does not
// tell.
func (p process) memory() (now, most float64) {
	mib := func(name string) float64 {
		kib, err := strconv.Atoi(strings.TrimSuffix(field(fmt.Sprintf("/proc/%d/status", p.pid), name), " kB"))
		if err != nil {
			return 0
		}
		return float64(kib) / 1024
	}
	return mib("VmRSS"), mib("VmHWM")
}

// cpu returns the processor time that a process has used; zero where the system does not tell.
func (p process) cpu() time.Duration {
	const ticks = 100 // a second, on every Linux
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticks
}

// ownCPU returns the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

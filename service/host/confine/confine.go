// SPDX-License-Identifier: Apache-2.0

// Package confine makes a process that may do little: the program that Raven executes in its own place (Run) gives up
// all that a driver does not need, and becomes the driver. It must never let a driver start with less confinement
// than its Spec asks for.
//
//	raven ── fork, exec ──▶ raven confined-driver SPEC ── exec, by descriptor ──▶ driver
//	         group, cgroup  user, capabilities, death signal,
//	                        no new privileges, Landlock, seccomp, limits
package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is the first argument with which Raven executes itself to become a driver; the second is the Spec.
const Command = "confined-driver"

// Status is the exit status of a process that could not be confined.
const Status = 71

// Spec says what a process becomes, and what of it is left.
type Spec struct {
	// Parent is the process whose end ends it.
	Parent int `json:"parent"`
	// Program is executed by its path, unless Descriptor names it.
	Program    string   `json:"program"`
	Descriptor int      `json:"descriptor,omitempty"`
	Script     bool     `json:"script,omitempty"` // an interpreter opens the descriptor again
	Args       []string `json:"args"`
	// User is the number of the user and group to become; 0 stays who it is.
	User int `json:"user,omitempty"`
	// Read may be read and executed, Write be read and written.
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	// Landlock and Seccomp say whether these are applied.
	Landlock bool `json:"landlock,omitempty"`
	Seccomp  bool `json:"seccomp,omitempty"`
	// Limits are for setrlimit, by resource.
	Limits map[int]uint64 `json:"limits,omitempty"`
}

// Arguments returns the arguments with which Raven executes itself.
func (s Spec) Arguments() ([]string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding what a driver may do: %w", err)
	}
	return []string{Command, string(text)}, nil
}

// Called says whether this process was executed to become a driver.
func Called(args []string) bool { return len(args) > 1 && args[1] == Command }

// Main is all of the main function of such a process. It does not return.
func Main(args []string) {
	fmt.Fprintln(os.Stderr, "confining the driver: "+Run(args).Error())
	os.Exit(Status)
}

// Run confines this process and becomes the program that the arguments name. It returns only an error.
func Run(args []string) error {
	if len(args) != 3 {
		return errors.New("this command is for Raven itself: it becomes a driver by it")
	}
	var s Spec
	if err := json.Unmarshal([]byte(args[2]), &s); err != nil {
		return fmt.Errorf("reading what it may do: %w", err)
	}
	runtime.LockOSThread() // most of what follows is done to this thread alone; exec leaves no other
	// Once the limits are set Go's runtime gets no more memory: it shall want none.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(math.MaxInt64)
	next, err := s.image()
	if err != nil {
		return err
	}
	steps, err := s.steps()
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.doing, err)
		}
	}
	return fmt.Errorf("cannot execute %s: %w", s.Program, next.execute(s))
}

// step is one thing that a process gives up.
type step struct {
	doing string
	do    func() error
}

// limiting is the last step. The driver's bounds may be less than what this process has already, and all of it needs
// memory.
const limiting = "limiting resources"

func (s Spec) steps() ([]step, error) {
	filter, err := s.filter()
	if err != nil {
		return nil, err
	}
	limits, err := s.bounds()
	if err != nil {
		return nil, err
	}
	var r ruleset
	return []step{
		{"standing back behind Raven", func() error { standBack(); return nil }},
		{"building the Landlock rules", func() error { return r.build(s) }},
		{"dropping capabilities", dropCapabilities},
		{"becoming another user", s.become},
		{"setting the death signal", s.dieWithParent},
		{"refusing new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"closing files", s.closeFiles},
		{"applying Landlock", r.apply},
		{"applying seccomp", filter.apply},
		{limiting, limits.apply},
	}, nil
}

const (
	// niceness is what a driver gives way by: of a processor that it contends for with Raven a thread of it gets a third
	// of what one of Raven's gets. Much more, and a driver on a busy machine would seem to hang.
	niceness = 5
	// expendable is what makes the kernel, out of memory, end a driver rather than Raven. -1000 means never, 1000 first.
	expendable = 500
	badness    = "/proc/self/oom_score_adj"
)

// standBack comes before the change of user, who may not write there. Where the machine permits that to no process, it
// does nothing.
func standBack() {
	giveWay()
	now, _ := os.ReadFile(badness)
	if score, err := strconv.Atoi(strings.TrimSpace(string(now))); err == nil && score < expendable {
		_ = os.WriteFile(badness, []byte(strconv.Itoa(expendable)), 0)
	}
}

// giveWay makes this thread nicer, where it may: see Yields.
func giveWay() {
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && niceOf-now < niceness {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	}
}

// niceOf less what getpriority returns is a process's nice value.
const niceOf = 20

// Yields returns why a driver cannot give way: everybody may become nicer, but something around Raven refuses the
// system call, such as a filter or a security module.
func Yields() error {
	runtime.LockOSThread() // each thread is as nice as it likes
	defer runtime.UnlockOSThread()
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return os.NewSyscallError("getpriority", err)
	}
	return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, niceOf-now))
}

// capabilityCount is more than there are.
const capabilityCount = 64

// dropCapabilities empties the bounding set, so that root's exec gains none either.
func dropCapabilities() error {
	if os.Geteuid() != 0 {
		return nil // there is nothing to drop: exec leaves none to another user
	}
	for capability := range uintptr(capabilityCount) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		// no such one, or root of little power, who gives none either
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) become() error {
	if s.User == 0 {
		return nil
	}
	id := uintptr(s.User)
	if _, _, code := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); code != 0 {
		return fmt.Errorf("leaving groups: %w", code)
	}
	if _, _, code := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); code != 0 {
		return fmt.Errorf("group %d: %w", s.User, code)
	}
	if _, _, code := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); code != 0 {
		return fmt.Errorf("user %d: %w", s.User, code)
	}
	return nil
}

// dieWithParent comes after the change of user, which would undo it. A parent that has ended before is noticed.
func (s Spec) dieWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if parent := os.Getppid(); parent != s.Parent && parent != 0 {
		return errors.New("the Raven that started this has ended")
	}
	return nil
}

// firstOther is the first descriptor that is none of the standard streams, the lifeline and the program.
const firstOther = 5

// closeFiles leaves the driver its streams, the lifeline and, for the interpreter of a script, the script.
func (s Spec) closeFiles() error {
	if err := unix.CloseRange(firstOther, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if s.Descriptor != 0 && !s.Script {
		unix.CloseOnExec(s.Descriptor)
	}
	return nil
}

// bound is a limit to be set.
type bound struct {
	resource int
	most     unix.Rlimit
}

type bounds []bound

// bounds are the limits, none above what this process itself may have.
func (s Spec) bounds() (bounds, error) {
	var out bounds
	for resource, most := range s.Limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return nil, fmt.Errorf("limit %d: %w", resource, err)
		}
		most = min(most, now.Max)
		out = append(out, bound{resource, unix.Rlimit{Cur: most, Max: most}})
	}
	return out, nil
}

func (b bounds) apply() error {
	for i := range b {
		if err := unix.Prlimit(0, b[i].resource, &b[i].most, nil); err != nil {
			return fmt.Errorf("limit %d: %w", b[i].resource, err)
		}
	}
	return nil
}

// image is what execveat takes.
type image struct {
	name      *byte
	at, flags int
	argv, env []*byte
}

func (s Spec) image() (image, error) {
	argv, err := syscall.SlicePtrFromStrings(s.Args)
	if err != nil {
		return image{}, fmt.Errorf("the driver's arguments: %w", err)
	}
	env, err := syscall.SlicePtrFromStrings(os.Environ())
	if err != nil {
		return image{}, fmt.Errorf("the driver's environment: %w", err)
	}
	path, at, flags := s.Program, unix.AT_FDCWD, 0
	if s.Descriptor != 0 {
		path, at, flags = "", s.Descriptor, unix.AT_EMPTY_PATH
	}
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return image{}, fmt.Errorf("the driver's path: %w", err)
	}
	return image{name: name, at: at, flags: flags, argv: argv, env: env}, nil
}

func (i image) execute(s Spec) error {
	//nolint:gosec // what the system call takes
	_, _, code := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(i.at), uintptr(unsafe.Pointer(i.name)),
		//nolint:gosec // as above
		uintptr(unsafe.Pointer(&i.argv[0])), uintptr(unsafe.Pointer(&i.env[0])), uintptr(i.flags), 0)
	runtime.KeepAlive(i)
	if errors.Is(code, unix.EACCES) && strings.HasPrefix(s.interpreter(), "/") {
		return fmt.Errorf("%w: it, or its interpreter %s, may not be executed in confinement: user %d must be able to "+
			"reach it, and [driver:…] allow_read name what is not below /usr", code, s.interpreter(), os.Geteuid())
	}
	return code
}

func (s Spec) interpreter() string {
	if s.Descriptor != 0 {
		return Interpreter(fmt.Sprintf("/proc/self/fd/%d", s.Descriptor))
	}
	return Interpreter(s.Program)
}

// Interpreter is what the first line of a script names; empty where there is none.
func Interpreter(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // only read
	start := make([]byte, 256)
	count, _ := file.Read(start)
	line, _, _ := strings.Cut(string(start[:count]), "\n")
	words, script := strings.CutPrefix(line, "#!")
	if fields := strings.Fields(words); script && len(fields) > 0 {
		return fields[0]
	}
	return ""
}

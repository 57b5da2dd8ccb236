// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/kuryr/raven/service/host/confine"
)

// Mode says how much confinement a driver needs to be started.
type Mode string

// The modes.
const (
	SandboxOff      Mode = "off"      // none: as any other child
	SandboxAuto     Mode = "auto"     // what the machine has
	SandboxRequired Mode = "required" // a machine that lacks Landlock or seccomp runs no driver, nor does root one as root
)

// Policy is how drivers are confined.
type Policy struct {
	Mode Mode
	// Self is the program that becomes a driver when it is executed with confine.Command. Empty is this one.
	Self string
	// User is the user that drivers run as, by name or number; that takes root. Empty is one of its own for each driver
	// where Raven is root, else Raven's own.
	User string
	// Memory bounds each driver, in bytes; 0 does not.
	Memory int64
}

// Measure is one part of the confinement.
type Measure struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
	Detail string `json:"detail"` // how, or why not
}

// Sandbox confines drivers by a Policy and by what this machine has. It is safe for concurrent use.
type Sandbox struct {
	policy   Policy
	landlock int
	seccomp  bool
	user     int // 0: none other
	own      bool
	groups   *confine.Groups
	measures []Measure
	coverage string // the folder where instrumented programs leave what they counted
}

// NewSandbox checks what the machine supports. The error says what a required Sandbox lacks, or which user there is
// not.
func NewSandbox(policy Policy) (*Sandbox, error) {
	if policy.Mode == "" {
		policy.Mode = SandboxOff
	}
	if policy.Self == "" {
		policy.Self = "/proc/self/exe" // this very program, whatever stands under its name by now
	}
	s := &Sandbox{policy: policy, coverage: os.Getenv("GOCOVERDIR")}
	if policy.Mode == SandboxOff {
		s.measures = []Measure{{Name: "sandbox", Detail: "driver_sandbox is off"}}
		return s, nil
	}
	s.landlock, s.seccomp = confine.Landlock(), confine.Seccomp()
	userless, err := s.chooseUser()
	if err != nil {
		return nil, err
	}
	var ungrouped error
	if policy.Memory > 0 {
		s.groups, ungrouped = confine.FindGroups()
	}
	s.describe(userless, ungrouped)
	var missing []string
	needed := []string{"landlock", "seccomp"}
	if os.Geteuid() == 0 {
		needed = append(needed, otherUser)
	}
	for _, m := range s.measures {
		if !m.Active && slices.Contains(needed, m.Name) {
			missing = append(missing, m.Name+": "+m.Detail)
		}
	}
	if policy.Mode == SandboxRequired && len(missing) > 0 {
		return nil,
			fmt.Errorf("drivers cannot be confined as driver_sandbox = required wants it: %s", strings.Join(missing, "; "))
	}
	return s, nil
}

// otherUser is the Measure that a driver does not run as Raven's own user.
const otherUser = "another user"

// Each driver of a root's Raven gets a user of its own out of these, which no account has: systemd leaves them free,
// and containers have them.
const (
	firstUser = 60600
	users     = 500
)

// chooseUser returns why there is no other user.
func (s *Sandbox) chooseUser() (why string, err error) {
	root := os.Geteuid() == 0
	switch {
	case s.policy.User != "":
		number, err := lookUpUser(s.policy.User)
		if err != nil {
			return "", err
		}
		if number == os.Geteuid() {
			return "driver_user is Raven's own", nil
		}
		if !root {
			return "",
				fmt.Errorf("driver_user = %s: only root may run drivers as another user, and Raven runs as user %d",
					s.policy.User, os.Geteuid())
		}
		s.user = number
		return "", nil
	case !root:
		return fmt.Sprintf("Raven is not root but user %d, and drivers are the same", os.Geteuid()), nil
	case s.coverage != "":
		return "GOCOVERDIR is set, and only Raven's user may write there", nil
	case !mapped(firstUser + users):
		return "this user namespace has no user beyond " + strconv.Itoa(firstUser), nil
	}
	s.own = true
	return "", nil
}

func lookUpUser(name string) (int, error) {
	if number, err := strconv.Atoi(name); err == nil {
		return number, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("driver_user = %s: there is no such user", name)
	}
	return strconv.Atoi(found.Uid)
}

// mapped says whether a user's number exists in this user namespace.
func mapped(number int) bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, length int
		if _, err := fmt.Sscan(line, &inside, &outside, &length); err == nil && number >= inside && number < inside+length {
			return true
		}
	}
	return false
}

func (s *Sandbox) describe(userless string, ungrouped error) {
	add := func(name string, active bool, yes, no string) {
		detail := no
		if active {
			detail = yes
		}
		s.measures = append(s.measures, Measure{name, active, detail})
	}
	add("no new privileges", true, "and no capabilities", "")
	files := fmt.Sprintf("version %d: only its program, libraries and socket", s.landlock)
	if s.landlock >= 4 {
		files += "; no TCP"
	}
	if s.landlock >= 6 {
		files += "; no signals"
	}
	add("landlock", s.landlock > 0, files,
		"this kernel has none, or it is not turned on (lsm=): what its user may read, a driver may read")
	add("seccomp", s.seccomp, "no network, no other processes, no tracing, no signals",
		"there is no filter for this kernel or machine")
	who := "one of its own for each driver"
	if s.user != 0 {
		who = strconv.Itoa(s.user)
	}
	add(otherUser, s.user != 0 || s.own, who, userless)
	add("limits", true, s.limits(), "")
	switch {
	case s.policy.Memory == 0:
		add("memory", false, "", "driver_memory_limit is 0")
	case s.groups != nil:
		add("memory", true, fmt.Sprintf("%d MiB, by a control group", s.policy.Memory>>20), "")
	default:
		by := fmt.Sprintf("%d MiB, by rlimit", s.policy.Memory>>20)
		if !s.seccomp {
			by = fmt.Sprintf("%d MiB, by rlimit, of memory that is not shared, and %d MiB in all, for there is no seccomp",
				s.policy.Memory>>20, s.space()>>20)
		}
		add("memory", true, fmt.Sprintf("%s: %s", by, ungrouped), "")
	}
	s.addProcessors(add, confine.Yields())
}

// addProcessors says what keeps a driver from taking all of them. impolite is why it cannot be nice.
func (s *Sandbox) addProcessors(add func(name string, active bool, yes, no string), impolite error) {
	const name, share = "processors", "a quarter of Raven's share, by a control group"
	shared := s.groups != nil && s.groups.Processors()
	switch {
	case shared && impolite != nil:
		add(name, true, fmt.Sprintf("%s; not nice: %v", share, impolite), "")
	case shared:
		add(name, true, share+"; nice", "")
	default:
		add(name, impolite == nil, "nice, which bounds a thread and not how many there are",
			fmt.Sprintf("a driver runs at the priority of Raven: %v", impolite))
	}
}

// limits says what rlimits bound, which is not the same everywhere.
func (s *Sandbox) limits() string {
	text := "open files, content of files, core dumps"
	if s.policy.Memory > 0 {
		text += ", address space"
	}
	switch {
	case s.groups != nil, s.user != 0, s.own:
		return fmt.Sprintf("%s, %d threads", text, maxThreads)
	case os.Geteuid() == 0:
		return text + "; not threads, which root may have as many of as there are"
	default:
		return fmt.Sprintf("%s, %d threads of all that user %d runs", text, sameUserThreads, os.Geteuid())
	}
}

// space bounds the addresses of a driver, used or not.
func (s *Sandbox) space() int64 { return 4*s.policy.Memory + spaceBeside }

// Measures lists what confines drivers on this machine, and what is lacking, for people.
func (s *Sandbox) Measures() []Measure {
	if s == nil {
		return nil
	}
	return s.measures
}

// off says whether nothing is confined.
func (s *Sandbox) off() bool { return s == nil || s.policy.Mode == SandboxOff }

// userOf returns the number of the user that a driver runs as, 0 for Raven's own.
func (s *Sandbox) userOf(name string) int {
	if !s.own {
		return s.user
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return firstUser + int(h.Sum32()%users)
}

const (
	// sameUserThreads is how many processes and threads a user may have who is Raven's own too.
	sameUserThreads = 4096
	maxThreads      = 256
	maxFiles        = 256
	// spaceBeside is what a program reserves without using it; Go's runtime some hundred MiB.
	spaceBeside = 4 << 30
)

// confine turns a process that would execute the driver into one that gives up what a driver does not need first.
// folder is where its socket will be, in which it finds itself.
func (p *process) confine(c Config, folder string) error {
	s := c.Sandbox
	if s.off() {
		return nil
	}
	spec := confine.Spec{
		Parent: os.Getpid(), Program: p.path, Args: p.cmd.Args, Script: p.program.script, User: s.userOf(c.label()),
		Read: c.AllowRead, Write: []string{folder}, Landlock: s.landlock > 0, Seccomp: s.seccomp,
		Limits: map[int]uint64{
			unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_NPROC: sameUserThreads, unix.RLIMIT_FSIZE: 0,
			unix.RLIMIT_MEMLOCK: 0, unix.RLIMIT_MSGQUEUE: 0,
		},
	}
	if p.program.byDescriptor() {
		spec.Descriptor = programAt
	}
	if why := p.program.unreachable(); s.own && why != "" {
		if s.policy.Mode == SandboxRequired {
			return fmt.Errorf("%s: driver_sandbox = required wants it to run as a user of its own, who may not execute it: %s",
				p.path, why)
		}
		spec.User = 0
		c.Logger.Warn("driver runs as Raven's own user, for another may not execute it", "reason", why)
	}
	if spec.User != 0 {
		spec.Limits[unix.RLIMIT_NPROC] = maxThreads
		if err := os.Chown(folder, spec.User, spec.User); err != nil {
			return fmt.Errorf("giving the driver its folder: %w", err)
		}
	}
	if s.coverage != "" {
		spec.Write = append(spec.Write, s.coverage)
		delete(spec.Limits, unix.RLIMIT_FSIZE)
	}
	if err := p.boundMemory(c, &spec); err != nil {
		return err
	}
	args, err := spec.Arguments()
	if err != nil {
		return err
	}
	p.cmd.Path, p.cmd.Args, p.cmd.Dir = s.policy.Self, append([]string{"raven"}, args...), folder
	p.folder = folder
	p.set("TMPDIR", folder)
	if spec.User != 0 {
		p.set(plugin.EnvUnixSocketDir, ".") // it could not go there by way of Raven's folders
	}
	if !p.has("GOMAXPROCS") {
		p.set("GOMAXPROCS", strconv.Itoa(runtime.GOMAXPROCS(0))) // it cannot see the control group that says how many
	}
	return nil
}

func (p *process) boundMemory(c Config, spec *confine.Spec) error {
	memory := c.Sandbox.policy.Memory
	if memory <= 0 {
		return nil
	}
	if !p.has("GOMEMLIMIT") {
		p.set("GOMEMLIMIT", strconv.FormatInt(memory/10*9, 10))
	}
	spec.Limits[unix.RLIMIT_AS] = uint64(c.Sandbox.space())
	if c.Sandbox.groups == nil {
		spec.Limits[unix.RLIMIT_DATA] = uint64(memory)
		return nil
	}
	group, err := c.Sandbox.groups.New(c.label(), memory)
	if err != nil {
		return err
	}
	p.group = group
	p.cmd.SysProcAttr.UseCgroupFD, p.cmd.SysProcAttr.CgroupFD = true, group.Descriptor()
	return nil
}

// has says whether the driver's environment has a variable.
func (p *process) has(name string) bool {
	return slices.ContainsFunc(p.cmd.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

// set sets a variable of the driver's environment.
func (p *process) set(name, value string) {
	p.cmd.Env = slices.DeleteFunc(p.cmd.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	p.cmd.Env = append(p.cmd.Env, name+"="+value)
}

// socket returns the path of the socket that a confined driver named: it is in its folder, whatever it says, and it
// is a socket.
func (p *process) socket(address string) (string, error) {
	path := filepath.Join(p.folder, filepath.Base(address))
	info, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("its socket: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return "", fmt.Errorf("%s is no socket", path)
	}
	return path, nil
}

// maxOwnFiles is how many files a confined driver may have in its folder. It needs one socket, and Go makes a file
// first to find a name for it.
const maxOwnFiles = 16

// litters says whether the driver fills the folder, which may be in memory, with more than it needs: no limit counts
// empty files.
func (p *process) litters() bool {
	if p.folder == "" {
		return false
	}
	folder, err := os.Open(p.folder)
	if err != nil {
		return false
	}
	defer func() { _ = folder.Close() }() // only read
	names, _ := folder.Readdirnames(maxOwnFiles + 1)
	return len(names) > maxOwnFiles
}

// Shield makes this process one that others of the same user, drivers above all, can neither trace nor inspect
// through /proc, and that leaves no core dump. A process that is being debugged stays as it is.
func Shield() error {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if tracer, ok := strings.CutPrefix(line, "TracerPid:"); ok && strings.TrimSpace(tracer) != "0" {
				return nil
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("shielding this process from its drivers: %w", err)
	}
	return nil
}

package machine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// programs are Debian's, as far as an installation goes. They work on $FAKE/root and note in $FAKE/calls what they were asked.
func programs() map[string]string {
	return map[string]string{
		"dpkg-query": `[ ! -e "$FAKE/installed" ] || /bin/cat "$FAKE/installed"`,
		"apt-get": `
case "$*" in
*update) exit 0 ;;
*--download-only*)
	[ ! -e "$FAKE/broken" ] || { echo "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem." >&2; exit 100; }
	echo fetch >>"$FAKE/calls"; exit 0 ;;
esac
/bin/cat /proc/$$/stat >"$FAKE/stat"
while [ -e "$FAKE/wait" ]; do /bin/sleep 0.02; done
[ -x "$FAKE/root/usr/sbin/policy-rc.d" ] || echo "nothing keeps services from starting" >>"$FAKE/calls"
for name in mariadb.service keystone.service; do /bin/ln -sf /dev/null "$FAKE/root/etc/systemd/system/multi-user.target.wants/$name"; done
/bin/ln -sf /dev/null "$FAKE/root/etc/systemd/system/sysinit.target.wants/systemd-pstore.service"
/bin/ln -sf /dev/null "$FAKE/root/etc/rc2.d/S01neutron-api"
[ ! -e "$FAKE/fails" ] || exit 1
echo install >>"$FAKE/calls"`,
		"dpkg":        `echo "dpkg $*" >>"$FAKE/calls"; /bin/rm "$FAKE/broken"`,
		"systemctl":   `echo "systemctl $*" >>"$FAKE/calls"; /bin/rm "$FAKE"/root/etc/systemd/system/*/"$3"`,
		"update-rc.d": `echo "update-rc.d $*" >>"$FAKE/calls"; /bin/rm "$FAKE"/root/etc/rc2.d/S01"$1"`,
	}
}

// debian is a machine with a database and cron, and with none of the packages.
func debian(t *testing.T) (dir string, i installer) {
	t.Helper()
	dir = t.TempDir()
	for name, script := range programs() {
		put(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n"+script+"\n")
	}
	for _, link := range []string{"etc/systemd/system/multi-user.target.wants/mariadb.service", "etc/systemd/system/sysinit.target.wants/some.service", "etc/rc2.d/S01cron", "usr/sbin/invoke-rc.d"} {
		put(t, filepath.Join(dir, "root", link), "")
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")) // and nothing of this machine's
	t.Setenv("FAKE", dir)
	return dir, installer{root: filepath.Join(dir, "root"), progress: &notes{}}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// notes is a writer that others may look into.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) has(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Contains(n.text.String(), text)
}

// left is what starts at boot afterwards, and whether there is a policy.
func left(i installer) string {
	text := strings.Join(i.startsAtBoot(), " ")
	if _, err := os.Stat(filepath.Join(i.root, policyFile)); err == nil {
		text += " policy"
	}
	return text
}

func TestServicesOfPackagesDoNotStart(t *testing.T) {
	const disabled = "systemctl disable --quiet keystone.service\nupdate-rc.d neutron-api disable\n"
	// As an installation writes it that is killed later.
	killed := "#!/bin/sh\n" + policyMark + policyUnit + "cron\n" + policyUnit + "mariadb.service\n" + policyUnit + "some.service\nexit 101\n"
	all := strings.Join(packages(), " installed\n") + " installed\n"
	for name, test := range map[string]struct {
		files       map[string]string
		calls, left string
	}{
		"all are missing": {nil, "fetch\ninstall\n" + disabled, "cron mariadb.service some.service"},
		"the machine has a policy of its own": {
			map[string]string{"root/" + policyFile: "#!/bin/sh\nexit 101\n"},
			"fetch\ninstall\n" + disabled, "cron mariadb.service some.service policy",
		},
		"apt fails":       {map[string]string{"fails": ""}, "fetch\n" + disabled, "cron mariadb.service some.service"},
		"none is missing": {map[string]string{"installed": all}, "", "cron mariadb.service some.service"},
		"an installation was killed": {
			map[string]string{"root/" + policyFile: killed, "root/etc/systemd/system/multi-user.target.wants/keystone.service": "", "broken": ""},
			"dpkg --configure -a\nfetch\ninstall\n" + disabled, "cron mariadb.service some.service",
		},
		"an installation was killed at its end": {
			map[string]string{"root/" + policyFile: killed, "root/etc/rc2.d/S01neutron-api": "", "installed": all},
			"update-rc.d neutron-api disable\n", "cron mariadb.service some.service",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, i := debian(t)
			for path, content := range test.files {
				put(t, filepath.Join(dir, path), content)
			}
			_, fails := test.files["fails"]
			if err := i.install(t.Context()); (err != nil) != fails {
				t.Error(err)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "calls")) // none: then there is no file
			if diff := cmp.Diff(test.calls, string(calls)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.left, left(i)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A dpkg that is killed leaves a machine that installs nothing.
func TestAnInterruptWaitsForDpkg(t *testing.T) {
	dir, i := debian(t)
	put(t, filepath.Join(dir, "wait"), "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- i.install(ctx) }()
	await(t, "packages are installed", func() bool {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		return err == nil && len(stat) > 0
	})
	cancel()
	await(t, "it says that this is finished first", func() bool { return i.progress.(*notes).has("finished first") })
	if err := os.Remove(filepath.Join(dir, "wait")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || !strings.Contains(string(calls), "install\nsystemctl disable") {
		t.Errorf("it was not finished: %s, %v", calls, err)
	}
	if diff := cmp.Diff("cron mariadb.service some.service", left(i)); diff != "" {
		t.Error(diff)
	}
	// The terminal's Ctrl-C goes to a whole process group.
	content, err := os.ReadFile(filepath.Join(dir, "stat"))
	if fields := strings.Fields(string(content)); err != nil || len(fields) < 5 || fields[0] != fields[4] {
		t.Errorf("apt is in the group of who called it: %s, %v", content, err)
	}
}

func TestAnInterruptEndsWhatIsOnlyFetched(t *testing.T) {
	dir, i := debian(t)
	put(t, filepath.Join(dir, "bin", "apt-get"), "#!/bin/sh\necho >\"$FAKE/stat\"\nexec /bin/sleep 1000\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- i.install(ctx) }()
	await(t, "packages are fetched", func() bool {
		_, err := os.Stat(filepath.Join(dir, "stat"))
		return err == nil
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was not interrupted")
	}
	if diff := cmp.Diff("cron mariadb.service some.service", left(i)); diff != "" {
		t.Error(diff)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting until %s", what)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/test/harness"
)

// programs are Debian's, as far as an installation goes. They work on $FAKE/root and note in $FAKE/calls what they
// were asked. While packages come, somebody installs docker.io and enables a unit of his own.
func programs() map[string]string {
	return map[string]string{
		"dpkg-query": `
[ "$1" = -S ] || { [ ! -e "$FAKE/installed" ] || /bin/cat "$FAKE/installed"; exit 0; }
shift
for file; do /bin/grep -e ": $file\$" "$FAKE/owners"; done
exit 1`, // not every file is a package's
		"apt-get": `
[ ! -e "$FAKE/locked" ] || { echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)" >&2; exit 100; }
case "$*" in
*update) exit 0 ;;
*--download-only*)
	[ ! -e "$FAKE/broken" ] || { echo "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem." >&2; exit 100; }
	echo fetch >>"$FAKE/calls"; exit 0 ;;
*" -s "*) /bin/cat "$FAKE/plan"; exit 0 ;;
esac
/bin/cat /proc/$$/stat >"$FAKE/stat"
while [ -e "$FAKE/wait" ]; do /bin/sleep 0.02; done
[ -x "$FAKE/root/usr/sbin/policy-rc.d" ] || echo "nothing keeps services from starting" >>"$FAKE/calls"
systemd="$FAKE/root/etc/systemd/system"
for name in keystone docker systemd-pstore; do /bin/ln -sf /lib/systemd/system/$name.service "$systemd/multi-user.target.wants"; done
/bin/ln -sf ../own.service "$systemd/multi-user.target.wants"
/bin/ln -sf ../init.d/neutron-api "$FAKE/root/etc/rc2.d/S01neutron-api"
[ ! -e "$FAKE/fails" ] || exit 1
[ ! -e "$FAKE/all" ] || /bin/cp "$FAKE/all" "$FAKE/installed"
echo install >>"$FAKE/calls"`,
		"dpkg": `echo "dpkg $*" >>"$FAKE/calls"; /bin/rm "$FAKE/broken"`,
		"systemctl": `
[ ! -e "$FAKE/stubborn" ] || exit 1
echo "systemctl $*" >>"$FAKE/calls"; /bin/rm "$FAKE"/root/etc/systemd/system/*/"$3"`,
		"update-rc.d": `echo "update-rc.d $*" >>"$FAKE/calls"; /bin/rm "$FAKE"/root/etc/rc2.d/S01"$1"`,
	}
}

const (
	// plan is how apt says what comes. sshd is there, and is upgraded.
	plan = `Inst openssh-server [1:9.2p1-2+deb12u6] (1:9.2p1-2+deb12u10 Debian:12.15/oldstable [amd64])
Inst keystone (2:22.0.2-0+deb12u1 Debian:12.15/oldstable [all])
Inst neutron-api:amd64 (2:21.0.0-7 Debian:12.15/oldstable [all])
Inst systemd (252.39-1~deb12u1 Debian:12.15/oldstable [amd64])
Conf openssh-server (1:9.2p1-2+deb12u10 Debian:12.15/oldstable [amd64])
Conf keystone (2:22.0.2-0+deb12u1 Debian:12.15/oldstable [all])
`
	owners = `openssh-server: /lib/systemd/system/ssh.service
keystone: /usr/lib/systemd/system/keystone.service
neutron-api: /etc/init.d/neutron-api
systemd:amd64: /lib/systemd/system/systemd-pstore.service
docker.io: /lib/systemd/system/docker.service
mariadb-server: /lib/systemd/system/mariadb.service
`
	// before, and after an installation meanwhile somebody did his.
	before, after = "cron mariadb.service ssh.service", "cron docker.service mariadb.service own.service ssh.service"
)

// debian is a machine with a database, sshd and cron, and with none of the packages.
func debian(t *testing.T) (dir string, i installer) {
	t.Helper()
	dir = t.TempDir()
	for name, script := range programs() {
		put(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n"+script+"\n")
	}
	for _, path := range []string{"root/run/any", "root/var/lib/any", "root/usr/sbin/invoke-rc.d"} {
		put(t, filepath.Join(dir, path), "")
	}
	put(t, filepath.Join(dir, "plan"), plan)
	put(t, filepath.Join(dir, "owners"), owners)
	enable(t, dir, "mariadb.service", "ssh.service", "cron")
	t.Setenv("PATH", filepath.Join(dir, "bin")) // and nothing of this machine's
	t.Setenv("FAKE", dir)
	return dir,
		installer{
			root: filepath.Join(dir, "root"), progress: &harness.Buffer{}, patience: 20 * time.Second,
			pause: 10 * time.Millisecond,
		}
}

func enable(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		link, file := "etc/systemd/system/multi-user.target.wants/"+name, "/lib/systemd/system/"+name
		if !strings.Contains(name, ".") {
			link, file = "etc/rc2.d/S01"+name, "../init.d/"+name
		}
		link = filepath.Join(dir, "root", link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
	}
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

// says says whether an installer has said this.
func says(i installer, text string) bool {
	return strings.Contains(i.progress.(*harness.Buffer).String(), text)
}

// left is what starts at boot afterwards, and what else an installation has left.
func left(i installer) string {
	var names []string
	for _, u := range i.startsAtBoot() {
		names = append(names, u.name)
	}
	for path, what := range map[string]string{policyFile: "policy", cameFile: "list"} {
		if _, err := os.Stat(filepath.Join(i.root, path)); err == nil {
			names = append(names, what)
		}
	}
	return strings.Join(names, " ")
}

// calls are what the programs were asked.
func calls(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // nothing was asked
		t.Fatal(err)
	}
	return string(content)
}

func allInstalled() string { return strings.Join(packages(), " installed\n") + " installed\n" }

const disabled = "systemctl disable --quiet keystone.service\nupdate-rc.d neutron-api disable\n"

func TestTwoInstallationsDoNotMeet(t *testing.T) {
	dir, i := debian(t)
	put(t, filepath.Join(dir, "all"), allInstalled())
	put(t, filepath.Join(dir, "wait"), "")
	second := i
	second.progress = &harness.Buffer{}
	ended := make(chan error, 2)
	go func() { ended <- i.install(t.Context()) }()
	await(t, "packages are installed", func() bool {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		return err == nil && len(stat) > 0
	})
	interrupted, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- second.install(interrupted) }()
	await(t, "the second waits", func() bool { return says(second, "another raven-e2e") || len(ended) > 0 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that waits is interrupted: %v", err)
	}
	go func() { ended <- second.install(t.Context()) }()
	if err := os.Remove(filepath.Join(dir, "wait")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff("fetch\ninstall\n"+disabled, calls(t, dir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(after, left(i)); diff != "" {
		t.Error(diff)
	}
}

// A machine that has just come up updates its packages, and apt fails at once where it does.
func TestSomebodyElseUpdates(t *testing.T) {
	dir, i := debian(t)
	put(t, filepath.Join(dir, "locked"), "")
	ended := make(chan error, 1)
	go func() { ended <- i.install(t.Context()) }()
	await(t, "it waits", func() bool { return says(i, "waiting up to 20s") || len(ended) > 0 })
	if err := os.Remove(filepath.Join(dir, "locked")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("fetch\ninstall\n"+disabled, calls(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestSomebodyElseUpdatesWithoutEnd(t *testing.T) {
	dir, i := debian(t)
	put(t, filepath.Join(dir, "locked"), "")
	i.patience = 50 * time.Millisecond
	if err := i.install(t.Context()); err == nil || !strings.Contains(err.Error(), "held by process 7") {
		t.Errorf("the error is %v", err)
	}
	if diff := cmp.Diff(before, left(i)); diff != "" {
		t.Error(diff)
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
	await(t, "it says that this is finished first", func() bool { return says(i, "finished first") })
	if err := os.Remove(filepath.Join(dir, "wait")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if diff := cmp.Diff("fetch\ninstall\n"+disabled, calls(t, dir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(after, left(i)); diff != "" {
		t.Error(diff)
	}
	// The terminal's Ctrl-C goes to a whole process group.
	content, err := os.ReadFile(filepath.Join(dir, "stat"))
	if fields := strings.Fields(string(content)); err != nil || len(fields) < 5 || fields[0] != fields[4] {
		t.Errorf("apt is in the group of who called it: %s, %v", content, err)
	}
}

// A dpkg that hangs needs no kill -9 of who waits for it: it is told what to do instead, and that leaves no mess.
func TestAnInterruptTellsHowToEndDpkg(t *testing.T) {
	dir, i := debian(t)
	put(t, filepath.Join(dir, "wait"), "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- i.install(ctx) }()
	var apt int
	await(t, "packages are installed", func() bool {
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		_, err := fmt.Sscan(string(stat), &apt)
		return err == nil
	})
	cancel()
	await(t, "it says how to end apt", func() bool { return says(i, fmt.Sprintf("`kill -- -%d`", apt)) })
	if err := syscall.Kill(-apt, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("what was ended is no error")
	}
	if diff := cmp.Diff(before+" list", left(i)); diff != "" {
		t.Error(diff)
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
	if diff := cmp.Diff(before, left(i)); diff != "" {
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

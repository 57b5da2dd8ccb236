// Package machine makes a Debian machine fit for a stack: it installs the packages and builds the control plane. It must never
// start a service, and never change a machine that is not the Debian it knows.
package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are those of Debian 12 that a stack needs, with what they need. 311 of them, 115 MB, on an empty machine; 196 s when
// it is busy (measured).
func packages() []string {
	return []string{
		"keystone", "neutron-api", "octavia-api", "octavia-worker", "octavia-driver-agent", "python3-ovn-octavia-provider",
		"ovn-central", "ovn-host", "openvswitch-switch", "mariadb-server", "rabbitmq-server", "memcached",
		"python3-pymysql", "python3-sqlalchemy-ext", "uwsgi-plugin-python3",
		"iproute2", "iputils-ping", "ethtool", "procps", "systemd", "nftables",
	}
}

// Able says why a stack cannot stand on this machine, or nil.
func Able() error {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return fmt.Errorf("this is no Debian 12: %w", err)
	}
	for _, line := range []string{"ID=debian", `VERSION_ID="12"`} {
		if !bytes.Contains(append([]byte("\n"), release...), []byte("\n"+line+"\n")) {
			return fmt.Errorf("this is no Debian 12: /etc/os-release lacks %s", line)
		}
	}
	if os.Geteuid() != 0 {
		return errors.New("this is not root: packages, network namespaces and Open vSwitch need it")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("packages cannot be installed: %w", err)
	}
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the userspace datapath of Open vSwitch needs TUN devices: %w", err)
	}
	if err := tun.Close(); err != nil {
		return err
	}
	if out, err := exec.CommandContext(context.Background(), "unshare", "--mount", "--net", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("network and mount namespaces cannot be made: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Install installs the packages that are missing. No service starts with them, now or at the next boot, but for those that
// were there before.
func Install(ctx context.Context, progress io.Writer) error {
	missing, err := Missing(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	fmt.Fprintf(progress, "installing %s\n", strings.Join(missing, " "))
	undo, err := denyServices()
	if err != nil {
		return err
	}
	defer undo()
	lock := "-oDPkg::Lock::Timeout=600" // somebody may be updating
	if err := apt(ctx, lock, "-qq", "update"); err != nil {
		return err
	}
	return apt(ctx, append([]string{lock, "-oDpkg::Use-Pty=0", "-qq", "-y", "--no-install-recommends", "install"}, missing...)...)
}

// Missing lists the packages that are not installed.
func Missing(ctx context.Context) ([]string, error) {
	// It fails for packages that it has never heard of, and prints the others.
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n").Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var missing []string
	for _, name := range packages() {
		if !bytes.Contains(append([]byte("\n"), out...), []byte("\n"+name+" installed\n")) {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func apt(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "apt-get", args...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, end(out))
	}
	return nil
}

// denyServices keeps packages from starting their services at installation, as Debian's policy-rc.d allows to. A machine that has
// such a file keeps its own.
func denyServices() (undo func(), err error) {
	const path = "/usr/sbin/policy-rc.d"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(file, "#!/bin/sh\nexit 101\n")
	return func() { _ = os.Remove(path) }, errors.Join(err, file.Close())
}

// CacheDir is where what is worth keeping between runs is: RAVEN_CACHE, or raven-ci in the user's folder of caches.
func CacheDir() (string, error) {
	dir := os.Getenv("RAVEN_CACHE")
	if dir == "" {
		caches, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(caches, "raven-ci")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// end is the end of a program's output.
func end(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-25):], "\n  ")
}

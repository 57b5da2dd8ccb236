// SPDX-License-Identifier: Apache-2.0

// Package machine makes a Debian machine fit for a stack: it installs the packages and builds the control plane. It
// must never start a service, now or at the next boot, and never change a machine that is not the Debian it knows.
package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are those of Debian 12 that a stack needs, with what they need. 311 of them, 115 MB, on an empty machine;
// 196 s when it is busy (measured).
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
	if out, err := exec.CommandContext(context.Background(), "unshare", "--mount", "--net",
		"true").CombinedOutput(); err != nil {
		return fmt.Errorf("network and mount namespaces cannot be made: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
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

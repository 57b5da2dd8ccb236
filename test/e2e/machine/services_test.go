// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServicesOfPackagesDoNotStart(t *testing.T) {
	// As an installation writes them that is killed later.
	policy, came := "#!/bin/sh\n"+policyMark+"\nexit 101\n", cameMark+"keystone\nneutron-api\n"
	for name, test := range map[string]struct {
		files       map[string]string
		enabled     []string
		calls, left string
	}{
		"all are missing": {nil, nil, "fetch\ninstall\n" + disabled, after},
		"the machine has a policy of its own": {
			map[string]string{"root/" + policyFile: "#!/bin/sh\nexit 101\n"},
			nil, "fetch\ninstall\n" + disabled,
			after + " policy",
		},
		// What is configured later is of the packages all the same.
		"apt fails":       {map[string]string{"fails": ""}, nil, "fetch\n" + disabled, after + " list"},
		"none is missing": {map[string]string{"installed": allInstalled()}, nil, "", before},
		"an installation was killed": {
			map[string]string{
				"root/" + policyFile: policy, "root/" + cameFile: came, "broken": "",
				"plan": "Conf keystone (2:22.0.2-0+deb12u1)\n",
			},
			[]string{"keystone.service"},
			"dpkg --configure -a\nfetch\ninstall\n" + disabled, after,
		},
		"an installation was killed at its end, and somebody has installed Docker since": {
			map[string]string{"root/" + policyFile: policy, "root/" + cameFile: came, "installed": allInstalled()},
			[]string{"neutron-api", "docker.service"},
			"update-rc.d neutron-api disable\n", "cron docker.service mariadb.service ssh.service",
		},
		"an installation was killed before anything came": {
			map[string]string{"root/" + policyFile: policy, "installed": allInstalled()},
			[]string{"docker.service"},
			"",
			"cron docker.service mariadb.service ssh.service",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, i := debian(t)
			for path, content := range test.files {
				put(t, filepath.Join(dir, path), content)
			}
			enable(t, dir, test.enabled...)
			_, fails := test.files["fails"]
			if err := i.install(t.Context()); (err != nil) != fails {
				t.Error(err)
			}
			if diff := cmp.Diff(test.calls, calls(t, dir)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.left, left(i)); diff != "" {
				t.Error(diff)
			}
			for _, told := range []string{
				"keystone.service of the new package keystone ", "neutron-api of the new package neutron-api ",
			} {
				name, _, _ := strings.Cut(told, " ")
				if strings.Contains(test.calls, name) != says(i, told) {
					t.Errorf("it says nothing, or something wrong, of %s", name)
				}
			}
		})
	}
}

// What could not be kept from starting at boot is not forgotten, and the next run is not green before it is.
func TestAServiceThatStaysIsTriedAgain(t *testing.T) {
	dir, i := debian(t)
	put(t, filepath.Join(dir, "all"), allInstalled())
	put(t, filepath.Join(dir, "stubborn"), "")
	for range 2 {
		if err := i.install(t.Context()); err == nil {
			t.Error("it says nothing of a service that starts at the next boot")
		}
	}
	if err := os.Remove(filepath.Join(dir, "stubborn")); err != nil {
		t.Fatal(err)
	}
	if err := i.install(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(after, left(i)); diff != "" {
		t.Error(diff)
	}
	// Afterwards it is the admin's.
	enable(t, dir, "keystone.service")
	if err := i.install(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(left(i), "keystone.service") {
		t.Error("what was enabled later was disabled")
	}
}

// systemd is one of the packages: one that fails before it comes may leave links, and no systemctl.
func TestServicesDoNotStartWithoutSystemctl(t *testing.T) {
	dir, i := debian(t)
	if err := os.Remove(filepath.Join(dir, "bin", "systemctl")); err != nil {
		t.Fatal(err)
	}
	if err := i.install(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(after, left(i)); diff != "" {
		t.Error(diff)
	}
}

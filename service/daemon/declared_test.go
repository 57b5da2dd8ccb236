// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
)

// A driver must not get at the core's secrets by what it declares.
func TestCheckDeclared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		option     drivers.Option
	}{
		{"an option of its own is fine", "", drivers.Option{
			Group: "mine", Name: "x", Default: "1",
			Env: []string{"RAVEN_SPY_X"},
		}},
		{"a group that drivers share is fine", "", drivers.Option{Group: "neutron_defaults", Name: "external_svc_net"}},
		{"the core's own in that group", "Raven's own", drivers.Option{
			Group: "neutron_defaults",
			Name:  "lbaas_activation_timeout",
		}},
		{"what operators of the first Raven know", "", drivers.Option{
			Group: "octavia_defaults", Name: "lb_algorithm", Deprecated: [][2]string{{"raven", "lb_method"}},
		}},
		{"the password, declared alike", "Raven's own", drivers.Option{Group: "neutron", Name: "password", Secret: true}},
		{"the group in other case", "Raven's own", drivers.Option{Group: "Neutron", Name: "password"}},
		{"as a former name", "Raven's own", drivers.Option{
			Group: "mine", Name: "x", Deprecated: [][2]string{{"neutron", "password"}},
		}},
		{"as a former name of the core's own", "Raven's own", drivers.Option{
			Group: "mine", Name: "x", Deprecated: [][2]string{{"keystone_client", "admin_password"}},
		}},
		{"by substitution", "refers to other options", drivers.Option{
			Group: "mine", Name: "x",
			Default: "${neutron.password}",
		}},
		{"by the environment", "environment variable", drivers.Option{
			Group: "mine", Name: "x",
			Env: []string{"OS_NEUTRON__PASSWORD"},
		}},
		{"another driver's section", "Raven's own", drivers.Option{Group: "driver:pod", Name: "sha256"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckDeclared("spy", drivers.Info{Name: "spy", Options: []drivers.Option{c.option}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestCheckSharedSecrets(t *testing.T) {
	t.Parallel()
	option := drivers.Option{Group: "mine", Name: "token", Secret: true}
	program := func(name string) Program {
		return Program{Name: name, Info: drivers.Info{Options: []drivers.Option{option}}}
	}
	if err := checkSharedSecrets([]Program{program("a")}); err != nil {
		t.Error(err)
	}
	if err := checkSharedSecrets([]Program{program("a"), program("b")}); err == nil {
		t.Error("two drivers may read one secret")
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"pod": true, "my-lb2": true, "shared": false, "a/b": false, "a:b": false,
		"": false, "A": false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

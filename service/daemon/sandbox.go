// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
)

// sandboxOptions say how drivers are confined.
func sandboxOptions() []config.Option {
	return []config.Option{
		{
			Group: OptionGroup, Name: "driver_sandbox", Default: string(host.SandboxAuto), Declarer: declarer,
			Choices: []string{string(host.SandboxAuto), string(host.SandboxRequired), string(host.SandboxOff)},
			Help: "How drivers are confined: auto by all that this machine has, required as well and no driver runs where " +
				"Landlock or seccomp is missing, nor as root where Raven is root, off not at all. `raven driver info` says what " +
				"confines them here.",
		},
		{
			Group: OptionGroup, Name: "driver_user", Declarer: declarer,
			Help: "The user that drivers run as, by name or number, which takes a Raven that runs as root. Default: a number " +
				"of its own for each driver where Raven is root, else Raven's user.",
		},
		{
			Group: OptionGroup, Name: "driver_memory_limit", Type: config.Integer, Default: "512", Min: num(0),
			Declarer: declarer,
			Help: "How much memory a driver may have, in MiB, by a control group where Raven has one of its own " +
				"(Delegate=memory), else by rlimit. 0 is no bound.",
		},
		{
			Group: OptionGroup, Name: "driver_max_losses", Type: config.Integer, Default: "10", Min: num(1), Advanced: true,
			Declarer: declarer,
			Help: "How often in a row a driver may be lost, without having lived for two minutes in between, before it is " +
				"quarantined: left alone for driver_quarantine.",
		},
		{
			Group: OptionGroup, Name: "driver_quarantine", Type: config.Duration, Default: "600", Min: num(1), Advanced: true,
			Declarer: declarer,
			Help: "How long a driver is left alone that is lost again and again, and how long an object is kept from a driver " +
				"that it ended or hung three times.",
		},
		{
			Group: OptionGroup, Name: "allow_attach", Type: config.Boolean, Default: "False", Advanced: true, Declarer: declarer,
			Help: "Whether a driver may be attached to that was started by hand with --debug, by [driver:<name>] attach or " +
				"$RAVEN_ATTACH_<NAME>. It is not confined and has no deadline: for those who write drivers.",
		},
	}
}

// sandboxFrom makes the sandbox that the configuration asks for.
func sandboxFrom(v *config.Values) (*host.Sandbox, error) {
	sandbox, err := host.NewSandbox(sandboxPolicy(v))
	if err != nil {
		return nil, fmt.Errorf("[%s] %w", OptionGroup, err)
	}
	return sandbox, nil
}

func sandboxPolicy(v *config.Values) host.Policy {
	return host.Policy{
		Mode: host.Mode(v.String(OptionGroup, "driver_sandbox")), User: v.String(OptionGroup, "driver_user"),
		Memory: v.Int(OptionGroup, "driver_memory_limit") << 20,
	}
}

// reportSandbox says once by what drivers are confined, and what this machine lacks.
func reportSandbox(log *slog.Logger, sandbox *host.Sandbox) {
	var by, lacking []string
	for _, m := range sandbox.Measures() {
		if m.Active {
			by = append(by, m.Name+" ("+m.Detail+")")
		} else {
			lacking = append(lacking, m.Name+" ("+m.Detail+")")
		}
	}
	attrs := []any{"by", by}
	if len(lacking) > 0 {
		attrs = append(attrs, "without", lacking)
	}
	log.Info("drivers are confined", attrs...)
}

// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
)

// Hosting is how the daemon would run a driver's program that need not be enabled: confined as the configuration says,
// and always confined.
func (l Loader) Hosting(path string, args []string) (host.Config, error) {
	sources, err := l.Sources()
	if err != nil {
		return host.Config{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return host.Config{}, err
	}
	name := strings.TrimPrefix(filepath.Base(path), ProgramPrefix)
	options := append(Options(), authorityOptions([]string{name})...)
	sources.Strict = false
	values, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return host.Config{}, err
	}
	policy := sandboxPolicy(values)
	if policy.Mode == host.SandboxOff {
		policy.Mode = host.SandboxAuto // the program is not known yet
	}
	sandbox, err := host.NewSandbox(policy)
	if err != nil {
		return host.Config{}, fmt.Errorf("[%s] %w", OptionGroup, err)
	}
	return host.Config{
		Path: path, Args: args, CoreVersion: l.Version, Sandbox: sandbox, AllowRead: authorityOf(values, name).allowRead,
		RuntimeDir: RuntimeDir(values),
	}, nil
}

// DeclaredValues are the values of the options that a driver declares, as the configuration has them.
func (l Loader) DeclaredValues(info drivers.Info) (drivers.Values, error) {
	sources, err := l.Sources()
	if err != nil {
		return nil, err
	}
	options := make([]config.Option, 0, len(info.Options))
	for _, o := range info.Options {
		options = append(options, driverOption(info.Name, o))
	}
	sources.Strict = false
	values, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	picked := drivers.Values{}
	for group, of := range values.Pick(options) {
		picked[group] = of
	}
	return picked, nil
}

// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kuryr/raven/service/config"
)

// greeterOptions are those of a program that greets.
func greeterOptions() []config.Option {
	return []config.Option{
		{Group: "greeter", Name: "name", Default: "world", Help: "Whom to greet.", Mutable: true, Declarer: "greeter"},
		{
			Group: "greeter", Name: "times", Type: config.Integer, Default: "1", Min: new(float64(1)), Declarer: "greeter",
			Help: "How often.",
		},
		{Group: "greeter", Name: "token", Secret: true, Help: "What the door asks for.", Declarer: "greeter"},
	}
}

// Values come from the command line, the environment, files and defaults, in this order of precedence.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "kuryr.conf")
	if err := os.WriteFile(file, []byte("[greeter]\nname = corvids\ntoken = nevermore\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	values, warnings, err := config.Load(config.Sources{
		Files: []string{file}, Environ: []string{"OS_GREETER__TIMES=2"},
	}, greeterOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	for range values.Int("greeter", "times") {
		fmt.Println("hello,", values.String("greeter", "name"))
	}
	fmt.Println(values.Origin("greeter", "times"), len(warnings), "warnings")
	// Output:
	// hello, corvids
	// hello, corvids
	// environment OS_GREETER__TIMES 0 warnings
}

// Every problem is reported at once, with where it stands.
func ExampleLoad_invalid() {
	_, _, err := config.Load(config.Sources{
		Environ: []string{"OS_GREETER__TIMES=often"},
		Args:    map[config.Name][]string{{Group: "greeter", Name: "nmae"}: {"corvids"}},
	}, greeterOptions())
	fmt.Println(err)
	// Output:
	// command line: [greeter] nmae: no such option; did you mean name?
	// environment OS_GREETER__TIMES: [greeter] times: "often" is not an integer; allowed: a whole number, at least 1
}

// A reload takes over what has changed; the log shows each change, without secrets.
func ExampleReload() {
	load := func(environ ...string) *config.Values {
		values, _, err := config.Load(config.Sources{Environ: environ}, greeterOptions())
		if err != nil {
			fmt.Println(err)
		}
		return values
	}
	before := load("OS_GREETER__NAME=crows", "OS_GREETER__TOKEN=one")
	now, taken, refused := config.Reload(before, load("OS_GREETER__NAME=ravens", "OS_GREETER__TOKEN=two"))
	fmt.Println(now.String("greeter", "name"), len(refused))
	for _, change := range taken {
		fmt.Println(change)
	}
	// Output:
	// ravens 0
	// [greeter] name: crows -> ravens (environment OS_GREETER__NAME)
	// [greeter] token: **** -> **** (environment OS_GREETER__TOKEN)
}

// Sample writes the file that an operator starts from.
func ExampleSample() {
	var sample strings.Builder
	if err := config.Sample(&sample, greeterOptions(),
		config.Group{Name: "greeter", Help: "Who is greeted, and how."}); err != nil {
		fmt.Println(err)
		return
	}
	_, group, _ := strings.Cut(sample.String(), "[DEFAULT]")
	fmt.Println(strings.TrimSpace(group))
	// Output:
	// [greeter]
	// # Who is greeted, and how.
	//
	// #
	// # From greeter
	// #
	//
	// # Whom to greet. (string value)
	// # Note: This option can be changed without restarting.
	// #name = world
	//
	// # How often. (integer value)
	// # Minimum value: 1
	// #times = 1
	//
	// # What the door asks for. (string value)
	// #token = <None>
}

// SPDX-License-Identifier: Apache-2.0

// Package sdk is all that the author of a driver needs beside package drivers: Serve is the whole main function. It
// must never be imported by a driver's translation itself, which is a pure function and belongs in a package of its
// own.
//
//	func main() { sdk.Serve(mydriver.New()) }
//
// A driver builds its Set from the types of package drivers. Optional fields are pointers, which new makes from a
// value:
//
//	drivers.Resource{Name: "port", Spec: drivers.Port{Name: new("web"), NetworkID: drivers.From("network")}}
package sdk

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

// Option changes how Serve serves.
type Option func(*wire.ServerConfig)

// Workers sets how many objects are translated at a time. The default is GOMAXPROCS.
func Workers(count int) Option { return func(config *wire.ServerConfig) { config.Workers = count } }

// Version sets the driver's version, in place of that of its Info: for one that the build of the program knows.
func Version(version string) Option {
	return func(config *wire.ServerConfig) { config.Version = version }
}

// Serve serves a driver to the Raven that started this process, and returns when Raven is done with it; main then
// returns too. It is the first thing that main does: from here on standard output is standard error, since the
// handshake needs it. Serve ends the process when Raven is gone. Started by hand, it says what this program is and
// ends the process with status 1; with --help or --version it answers that and ends it with status 0; with --debug it
// serves until it is interrupted, and says how a Raven attaches to it.
//
// A panic in Translate is an error for that object alone; its stack is in the log.
func Serve(driver drivers.Driver, options ...Option) {
	var config wire.ServerConfig
	for _, option := range options {
		option(&config)
	}
	if wantsDebug(os.Args) {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		slog.SetDefault(config.Logger)
		if err := serveDebug(driver, config, os.Stdout); err != nil {
			config.Logger.Error("cannot be debugged", "error", err)
			os.Exit(1)
		}
		return
	}
	if status, done := byHand(driver, config.Version, os.Args, os.Getenv, os.Stdout, os.Stderr); done {
		os.Exit(status)
	}
	logger := Logger()
	nameProcess(os.Args[0])
	if err := takeStdout(); err != nil {
		logger.Error("cannot set standard output aside", "error", err)
		os.Exit(1)
	}
	slog.SetDefault(logger)
	if held, err := holdLifeline(os.Getenv(wire.LifelineEnv)); err != nil {
		logger.Error("cannot hold the lifeline", "error", err)
		os.Exit(1)
	} else if held {
		// Raven stops its drivers itself, after their work is drained. A signal to the whole service must not do it first.
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	config.Logger = logger
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: wire.Handshake(),
		Plugins:         wire.Plugins(&wire.Plugin{Driver: driver, ServerConfig: config}),
		Logger: hclog.New(&hclog.LoggerOptions{
			Name: "go-plugin", Level: hclog.Warn, Output: stderr{}, JSONFormat: true,
		}),
		GRPCServer: func(given []grpc.ServerOption) *grpc.Server {
			given = append(given, grpc.ChainUnaryInterceptor(ownStreams(os.Stderr)))
			return grpc.NewServer(append(given, wire.ServerOptions()...)...)
		},
	})
}

// byHand answers a person. It says whether that was all.
func byHand(
	driver drivers.Driver, version string, args []string, env func(string) string, out, errs io.Writer,
) (status int, done bool) {
	info := driver.Info()
	info.Version = cmp.Or(version, info.Version)
	if len(args) > 1 {
		switch args[1] {
		case "--version", "-version", "version":
			fmt.Fprintf(out, "%s %s (driver protocol %d)\n", info.Name, versionOf(info), wire.ProtocolVersion)
			return 0, true
		case "--help", "-help", "-h", "help":
			help(out, info)
			return 0, true
		}
	}
	if env(wire.CookieKey) == wire.CookieValue {
		return 0, false
	}
	fmt.Fprintf(errs, "%s is a driver of Raven, which starts it by itself; it does nothing when started by hand.\n"+
		"To use it, put it into [raven] plugin_dir as raven-driver-%s and add %s to [raven] drivers in kuryr.conf.\n"+
		"--help shows its options.\n", args[0], info.Name, info.Name)
	return 1, true
}

func versionOf(info drivers.Info) string {
	if info.Version != "" {
		return info.Version
	}
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "(unknown version)"
}

func help(out io.Writer, info drivers.Info) {
	fmt.Fprintf(out, "%s %s, a driver of Raven (driver protocol %d)\n", info.Name, versionOf(info), wire.ProtocolVersion)
	if info.Description != "" {
		fmt.Fprintf(out, "%s\n", info.Description)
	}
	if len(info.Options) == 0 {
		return
	}
	fmt.Fprintf(out, "\nOptions in kuryr.conf:\n")
	for _, option := range info.Options {
		fmt.Fprintf(out, "  [%s] %s (%s", option.Group, option.Name, option.Type)
		if option.HasDefault && !option.Secret {
			fmt.Fprintf(out, ", default %q", option.Default)
		}
		if option.Required {
			fmt.Fprintf(out, ", required")
		}
		if len(option.Choices) > 0 {
			fmt.Fprintf(out, ", one of %s", strings.Join(option.Choices, ", "))
		}
		fmt.Fprintf(out, ")\n      %s\n", strings.ReplaceAll(option.Help, "\n", "\n      "))
	}
}

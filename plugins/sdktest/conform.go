// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdktest/conformance"
	"github.com/kuryr/raven/plugins/wire"
)

// Conform puts a driver through the conformance suite, over gRPC inside of the test: what only a process of its own
// shows is skipped. Its options have their defaults. The files are manifests: objects that it translates, and others
// that answer its needs.
func Conform(tb testing.TB, driver drivers.Driver, files ...string) conformance.Report {
	tb.Helper()
	return conform(tb, func(context.Context, ...string) (*conformance.Target, error) {
		conn, stop, err := serveInside(driver, wire.ServerConfig{})
		if err != nil {
			return nil, err
		}
		return &conformance.Target{Conn: conn, Stop: func() bool { return stop() == nil }}, nil
	}, files)
}

// ConformProgram puts a driver's program, in whatever language it is written, through all of the conformance suite, as
// `raven driver check` does.
func ConformProgram(tb testing.TB, path string, files ...string) conformance.Report {
	tb.Helper()
	return conform(tb, conformance.Program(path), files)
}

func conform(
	tb testing.TB, start func(context.Context, ...string) (*conformance.Target, error), files []string,
) conformance.Report {
	tb.Helper()
	config := conformance.Config{Start: start}
	for _, file := range files {
		objects, err := readDocuments(file)
		if err != nil {
			tb.Fatal(err)
		}
		config.Objects = append(config.Objects, objects...)
	}
	report, err := conformance.Run(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	for _, result := range report.Results {
		switch result.Verdict {
		case conformance.Fail:
			tb.Errorf("%s: %s: %v", result.Check, result.What, result.Details)
		case conformance.Warn, conformance.Skip:
			tb.Logf("%s: %s: %v", result.Verdict, result.Check, result.Details)
		case conformance.Pass:
		}
	}
	return report
}

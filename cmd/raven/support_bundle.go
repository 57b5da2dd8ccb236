// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/log"
)

// bundleTimeout bounds each part of a bundle but the plan, which lists the cluster and the cloud.
const (
	bundleTimeout     = 30 * time.Second
	bundlePlanTimeout = 5 * time.Minute
)

func newSupportBundleCommand(flags *globalFlags, io streams) *cobra.Command {
	var file, address string
	var noPlan bool
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write an archive of all that helps to find a fault, without secrets",
		Long: `Write a tar.gz of what helps to find a fault: versions, the configuration with secrets masked, findings as of
config validate, status, metrics, readiness, goroutines and the last log lines of the daemon on this machine, the
drivers, and what raven plan prints. Nothing is changed anywhere. What cannot be had is named in errors.txt.

No password, token or other secret of the configuration, of clouds.yaml and of the kubeconfig gets into it. Names,
addresses and ids of objects and resources do: read it before you pass it on. Run it as the user of the daemon, or
as root, for goroutines and log.`,
		Example: "  raven support-bundle\n  raven support-bundle -f /tmp/raven.tar.gz --no-plan",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				file = "raven-support-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			}
			return runSupportBundle(cmd.Context(), flags, io, file, address, !noPlan)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "`file` to write, which must not exist (default: raven-support-TIME.tar.gz)")
	f.StringVar(&address, "address", "", "`host:port` of the daemon's health server (default: from the configuration)")
	f.BoolVar(&noPlan, "no-plan", false, "leave out the plan, which lists the cluster and the cloud")
	return cmd
}

func runSupportBundle(
	ctx context.Context, flags *globalFlags, out streams, file, address string, plan bool,
) (err error) {
	b, err := newBundle(ctx, flags)
	if err != nil {
		return err
	}
	if address == "" {
		if address, err = flags.statusAddress(); err != nil {
			return err
		}
	}
	b.ofConfiguration()
	b.ofDaemon(ctx, address)
	b.ofDrivers(ctx)
	if plan {
		b.ofPlan(ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.write(file); err != nil {
		return err
	}
	fmt.Fprintf(out.out, "%s holds %d files. Read them before you pass them on: secrets are masked, names and addresses "+
		"are not.\n", file, len(b.files))
	for _, problem := range b.problems {
		fmt.Fprintln(out.err, "missing: "+problem)
	}
	return nil
}

// bundle gathers files, without the secrets that it knows.
type bundle struct {
	settings *daemon.Settings
	redactor *log.Redactor
	complete bool // the configuration has no errors
	files    []bundleFile
	problems []string
}

type bundleFile struct {
	name string
	text []byte
}

// newBundle learns the secrets. Without them there is no bundle: they could not be masked.
func newBundle(ctx context.Context, flags *globalFlags) (*bundle, error) {
	check := flags.loader().Check(ctx)
	if check.Settings == nil {
		return nil, errors.New("the configuration cannot be read, so that its secrets cannot be masked: see raven config " +
			"validate")
	}
	b := &bundle{settings: check.Settings, redactor: check.Settings.Redactor(), complete: check.Errors() == 0}
	if !b.complete {
		b.problems = append(b.problems, "drivers and plan: the configuration has errors, see config-validate.txt")
	}
	b.print("config-validate.txt", func(w io.Writer) error {
		for _, f := range check.Findings {
			fmt.Fprintf(w, "%-5s %s\n", f.Level, f.Message)
		}
		return nil
	})
	return b, nil
}

// add gathers a file, or why it cannot be had.
func (b *bundle) add(name string, text []byte, err error) {
	if err != nil {
		b.problems = append(b.problems, b.redactor.Text(fmt.Sprintf("%s: %v", name, err)))
		if len(text) == 0 {
			return
		}
	}
	b.files = append(b.files, bundleFile{name, []byte(b.redactor.Text(string(text)))})
}

// print gathers what something prints.
func (b *bundle) print(name string, do func(io.Writer) error) {
	var text bytes.Buffer
	err := do(&text)
	b.add(name, text.Bytes(), err)
}

func (b *bundle) ofConfiguration() {
	b.print("version.txt", func(w io.Writer) error {
		fmt.Fprintf(w, "raven %s\n%s %s/%s, %d processors\n", version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH,
			goruntime.NumCPU())
		release, err := os.ReadFile("/proc/sys/kernel/osrelease")
		fmt.Fprintf(w, "kernel %s", release)
		return err
	})
	b.print("config.txt", b.settings.Values.Show)
}

// ofDaemon gathers what a running daemon says.
func (b *bundle) ofDaemon(ctx context.Context, address string) {
	for name, path := range map[string]string{
		"status.json": "/status", "describe.json": "/status?" + daemon.DescribeQuery + "=true", "livez.txt": "/livez",
		"readyz.txt": "/readyz", "metrics.txt": "/metrics",
	} {
		text, err := fetch(ctx, address, path)
		b.add(name, text, err)
	}
	folder := daemon.RuntimeDir(b.settings.Values)
	for name, part := range map[string]string{
		"config-of-daemon.txt": daemon.PartConfig, "goroutines.txt": daemon.PartGoroutines, "log.txt": daemon.PartLog,
	} {
		ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
		text, err := daemon.Ask(ctx, folder, part)
		cancel()
		b.add(name, text, err)
	}
}

// fetch gets a page of the health server, whatever its status.
func fetch(ctx context.Context, address, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	page, query, _ := strings.Cut(path, "?")
	target := url.URL{Scheme: "http", Host: address, Path: page, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

func (b *bundle) ofDrivers(ctx context.Context) {
	if !b.complete {
		return
	}
	infos := []driverInfo{}
	for _, p := range b.settings.Programs {
		watches, err := b.settings.Watches(ctx, p)
		digest := ""
		if err == nil {
			digest, err = host.Digest(p.Path)
		}
		if err != nil {
			b.problems = append(b.problems, b.redactor.Text(fmt.Sprintf("driver %s: %v", p.Name, err)))
			continue
		}
		infos = append(infos, describe(p, watches, digest))
	}
	b.print("drivers.json", func(w io.Writer) error { return structured(w, "json", infos) })
}

func (b *bundle) ofPlan(ctx context.Context) {
	if !b.complete {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bundlePlanTimeout)
	defer cancel()
	planned, err := b.settings.Plan(ctx)
	if err != nil {
		b.add("plan.json", nil, err)
		return
	}
	b.print("plan.json", func(w io.Writer) error {
		var status statusError
		if err := finishPlan(streams{out: w, err: io.Discard}, planned, "json"); !errors.As(err, &status) {
			return err
		}
		return nil // which is about changes
	})
}

// write makes the archive. Only this user may read it.
func (b *bundle) write(file string) (err error) {
	if len(b.problems) > 0 {
		b.add("errors.txt", []byte(strings.Join(b.problems, "\n")+"\n"), nil)
	}
	target, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the bundle: %w; name another file with -f", err)
	}
	defer func() {
		if closed := target.Close(); err == nil && closed != nil {
			err = fmt.Errorf("writing the bundle: %w", closed)
		}
		if err != nil {
			_ = os.Remove(file) // a half of it is of no use
		}
	}()
	if err = b.pack(target, strings.TrimSuffix(filepath.Base(file), ".tar.gz")); err != nil {
		return fmt.Errorf("writing the bundle: %w; name another file with -f", err)
	}
	return nil
}

// pack writes the files as a tar.gz, in a folder.
func (b *bundle) pack(target io.Writer, folder string) (err error) {
	packed := gzip.NewWriter(target)
	archive := tar.NewWriter(packed)
	for _, f := range b.files {
		header := &tar.Header{
			Name: folder + "/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: time.Now(), Format: tar.FormatPAX,
		}
		if err = archive.WriteHeader(header); err == nil {
			_, err = archive.Write(f.text)
		}
		if err != nil {
			break // the others would say the same
		}
	}
	for _, end := range []func() error{archive.Close, packed.Close} {
		if err == nil {
			err = end()
		}
	}
	return err
}

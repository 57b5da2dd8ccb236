// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/daemon"
)

func newTranslateCommand(flags *globalFlags, io streams) *cobra.Command {
	var (
		files  []string
		format string
	)
	cmd := &cobra.Command{
		Use:   "translate -f FILE",
		Short: "Print what the enabled drivers make of objects in a file, with no cluster and no cloud",
		Long: `Print what the enabled drivers make of the objects in manifest files. Neither a cluster nor a cloud is asked:
what one object needs of another is answered from the same files, and what is not in them is absent. Each object of
the files is accounted for: under "unread" stands why no enabled driver translates it.

Exit statuses, as of plan: 0 the drivers want nothing, 2 they want something, 1 an error.`,
		Example: `  raven translate -f manifest.yaml
  kubectl get namespaces,pods -A -o yaml | raven translate -f - -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "yaml" && format != "json" {
				return statusError{exitUsage, fmt.Errorf("-o %q: it must be yaml or json", format)}
			}
			if len(files) == 0 {
				return statusError{exitUsage, errors.New("-f is missing: name a manifest file, or - for standard input")}
			}
			return runTranslate(cmd.Context(), flags, io, files, format)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest `file` in YAML or JSON, - for standard input; "+
		"may be given again")
	cmd.Flags().StringVarP(&format, "output", "o", "yaml", "output `format`: yaml or json")
	return cmd
}

// translated is what one driver made of one object.
type translated struct {
	Object string         `json:"object"`
	Driver string         `json:"driver"`
	Set    map[string]any `json:"set,omitempty"`
	// UndecidedBecause says why the Set leaves names undecided: what it needs and the files lack.
	UndecidedBecause []string `json:"undecidedBecause,omitempty"`
	Error            string   `json:"error,omitempty"`
}

func runTranslate(ctx context.Context, flags *globalFlags, out streams, files []string, format string) error {
	objects, err := readManifests(out.in, files)
	if err != nil {
		return err
	}
	l, err := flags.loader().Load(ctx)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(out.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	results, watches := []translated{}, map[string][]drivers.Watch{}
	for _, p := range l.Programs {
		list, of, err := translateAll(ctx, l, p, log, objects)
		if err != nil {
			return err
		}
		results, watches[p.Name] = append(results, list...), of
	}
	unread, err := daemon.Account(watches, objects)
	if err != nil {
		return err
	}
	document := translationDocument{FormatVersion: formatVersion, Objects: results, Unread: unread}
	if err := structured(out.out, format, document); err != nil {
		return err
	}
	if len(results) == 0 {
		return fmt.Errorf("none of the %d objects in the files is read by the enabled drivers", len(objects))
	}
	failed := slices.IndexFunc(results, func(t translated) bool { return t.Error != "" })
	if failed >= 0 {
		return fmt.Errorf("%s: %s", results[failed].Object, results[failed].Error)
	}
	if slices.ContainsFunc(results, func(t translated) bool { return len(t.Set) > 0 }) {
		return statusError{status: exitChanges}
	}
	return nil
}

func translateAll(
	ctx context.Context, l *daemon.Settings, p daemon.Program, log *slog.Logger, objects []*unstructured.Unstructured,
) ([]translated, []drivers.Watch, error) {
	plugin, err := l.Launch(ctx, p, log)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = plugin.Stop(context.WithoutCancel(ctx)) }()
	contents := make([]map[string]any, 0, len(objects))
	for _, o := range objects {
		contents = append(contents, o.Object)
	}
	var results []translated
	for _, w := range plugin.Watches() {
		if !w.Source {
			continue
		}
		for _, o := range objects {
			matches, err := drivers.Matches(w, o.Object)
			if err != nil {
				return nil, nil, err
			}
			if !matches {
				continue
			}
			t := translated{Object: daemon.ObjectText(o), Driver: p.Name}
			set, absent, err := translateOne(ctx, plugin, p.Info, w, o, contents)
			if err != nil {
				t.Error = err.Error()
			} else {
				t.Set = set.Render()
			}
			if len(set.Undecided) > 0 {
				t.UndecidedBecause = undecidedBecause(set, absent)
			}
			results = append(results, t)
		}
	}
	return results, plugin.Watches(), nil
}

// undecidedBecause says why a driver has no opinion on something: by its own words, or by what it asked for in vain.
func undecidedBecause(set drivers.Set, absent []drivers.Need) []string {
	var reasons []string
	for _, need := range absent {
		reasons = append(reasons, "the files lack "+need.String())
	}
	for _, d := range set.Diagnostics {
		reasons = append(reasons, d.Message)
	}
	if len(reasons) == 0 {
		reasons = []string{"the driver leaves it to what exists in the cloud"}
	}
	return reasons
}

func translateOne(
	ctx context.Context, driver drivers.Driver, info drivers.Info, w drivers.Watch, o *unstructured.Unstructured,
	all []map[string]any,
) (set drivers.Set, absent []drivers.Need, err error) {
	object, err := w.Object(o.Object)
	if err != nil {
		return set, nil, err
	}
	answers := map[drivers.Need][]drivers.Object{}
	for round := range drivers.MaxRounds {
		needs := drivers.NewNeeds(answers).WithRound(round + 1)
		set, err := driver.Translate(ctx, object, needs)
		if err != nil {
			return drivers.Set{}, nil, err
		}
		if !needs.Open() {
			return set, absent, set.Validate(info)
		}
		for _, need := range needs.Asked() {
			if answers[need], err = drivers.Answer(driver.Watches(), need, all); err != nil {
				return drivers.Set{}, nil, err
			}
			if len(answers[need]) == 0 {
				absent = append(absent, need)
			}
		}
	}
	return drivers.Set{}, nil, fmt.Errorf("its needs did not settle in %d rounds", drivers.MaxRounds)
}

// readManifests reads all documents of the files; lists are opened.
func readManifests(in io.Reader, files []string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range files {
		list, err := readManifest(in, name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		objects = append(objects, list...)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("there are no objects in %s", strings.Join(files, ", "))
	}
	return objects, nil
}

func readManifest(in io.Reader, name string) ([]*unstructured.Unstructured, error) {
	content, err := readAll(in, name)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for n := 1; ; n++ {
		raw := map[string]any{}
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(raw) == 0 {
			continue
		}
		o := &unstructured.Unstructured{Object: raw}
		if o.GetKind() == "" || o.GetAPIVersion() == "" {
			return nil, fmt.Errorf("document %d has no kind or apiVersion", n)
		}
		if !o.IsList() {
			objects = append(objects, named(o))
			continue
		}
		err := o.EachListItem(func(item k8sruntime.Object) error {
			if u, ok := item.(*unstructured.Unstructured); ok {
				objects = append(objects, named(u))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

func readAll(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}

func named(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o.GetNamespace() == "" && o.GetKind() == "Pod" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

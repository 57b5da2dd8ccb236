// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
)

func (s *suite) start(ctx context.Context, f *finding) {
	target, err := s.config.Start(ctx)
	if err != nil {
		f.fail("%v", err)
		return
	}
	bounded, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	message, err := s.getInfo(bounded, target)
	if err == nil {
		s.session, err = open(ctx, target.Conn)
	}
	if err != nil {
		f.fail("%v", err)
		target.Stop()
		return
	}
	s.target, s.described = target, message
	s.report.Driver, s.report.Version, s.report.SDK = message.GetName(), message.GetVersion(), message.GetSdk()
	s.atFirst, _ = observe(target.PID) // purity says where this cannot be seen
	if s.info, err = wire.InfoFromProto(message); err != nil {
		f.fail("its info cannot be read: %v", err)
	}
}

func (s *suite) getInfo(ctx context.Context, target *Target) (*ravenv1.GetInfoResponse, error) {
	message, err := ravenv1.NewDriverServiceClient(target.Conn).GetInfo(ctx, &ravenv1.GetInfoRequest{
		CoreVersion: "conformance", Capabilities: append(wire.CoreCapabilities(nil), "unknown-to-everybody"),
	})
	if err != nil {
		return nil, fmt.Errorf("GetInfo: %w", err)
	}
	return message, nil
}

func (s *suite) health(ctx context.Context, f *finding) {
	if s.target.PID == 0 {
		f.skip("it runs inside of the test")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	answer, err := healthv1.NewHealthClient(s.target.Conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "plugin"})
	switch {
	case err != nil:
		f.fail("it does not answer a health check, so that Raven would restart it: %v", err)
	case answer.GetStatus() != healthv1.HealthCheckResponse_SERVING:
		f.fail("its health is %s", answer.GetStatus())
	}
}

var driverName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

var capabilityName = regexp.MustCompile(`^[a-z0-9][a-z0-9:-]{0,63}$`)

func (s *suite) checkInfo(f *finding) {
	if !driverName.MatchString(s.info.Name) {
		f.fail("name %q: it must have lower case letters, digits and dashes, at most 40", s.info.Name)
	}
	if s.info.Version == "" {
		f.warn("it has no version")
	}
	if s.info.Description == "" {
		f.warn("it has no description, which `raven driver list` would show")
	}
	for _, kind := range s.info.Kinds {
		if !slices.Contains(drivers.Kinds(), kind) {
			f.fail("kind %q is none of %v", kind, drivers.Kinds())
		}
	}
	for _, key := range append(slices.Clone(s.info.Annotations), s.info.Labels...) {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) {
			f.fail("key %q cannot be that of an annotation or a label: %s", key, problem)
		}
	}
	for _, capability := range s.info.Capabilities {
		if !capabilityName.MatchString(capability) {
			f.fail("capability %q: it must have lower case letters, digits, dashes and colons, at most 64", capability)
		}
	}
	for _, part := range s.info.Status {
		if part != drivers.StatusLoadBalancer {
			f.fail("status %q is not %q", part, drivers.StatusLoadBalancer)
		}
	}
	s.checkOptions(f)
}

var optionName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (s *suite) checkOptions(f *finding) {
	seen := map[[2]string]bool{}
	for _, option := range s.info.Options {
		at := fmt.Sprintf("option [%s] %s", option.Group, option.Name)
		key := [2]string{option.Group, option.Name}
		switch {
		case option.Group == "" || !optionName.MatchString(option.Name):
			f.fail("%s: it needs a group and a name of lower case letters, digits and underscores", at)
		case seen[key]:
			f.fail("%s: it is declared twice", at)
		case option.Help == "":
			f.warn("%s: it has no help, which kuryr.conf.sample would show", at)
		}
		seen[key] = true
		if option.HasDefault && len(option.Choices) > 0 && option.Default != "" &&
			!slices.Contains(option.Choices, option.Default) {
			f.fail("%s: its default %q is none of its choices", at, option.Default)
		}
		if strings.Contains(option.Default, "$") {
			f.fail("%s: its default refers to other options, which the core does not allow", at)
		}
		if option.Secret && option.HasDefault && option.Default != "" {
			f.warn("%s: a secret should have no default", at)
		}
	}
	if _, err := drivers.DefaultValues(s.info.Options, nil); err != nil {
		f.fail("its defaults cannot be read: %v", err)
	}
}

func (s *suite) configure(ctx context.Context, f *finding) {
	var err error
	if s.config.Values != nil {
		s.values, err = s.config.Values(s.info)
	} else {
		s.values, err = drivers.DefaultValues(s.info.Options, nil)
	}
	if err != nil {
		f.fail("its options' values: %v", err)
		return
	}
	request, err := wire.ValuesToProto(s.values)
	if err != nil {
		f.fail("its options' values: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	rpc := ravenv1.NewDriverServiceClient(s.target.Conn)
	first, err := rpc.Configure(ctx, request)
	if err != nil {
		f.fail("it answers Configure by a gRPC status, which is for calls that could not be made: %v", err)
		return
	}
	for _, d := range first.GetDiagnostics() {
		at := strings.TrimSpace(fmt.Sprintf("[%s] %s", d.GetGroup(), d.GetName()))
		if d.GetSeverity() == ravenv1.Severity_SEVERITY_WARNING || d.GetSeverity() == ravenv1.Severity_SEVERITY_NOTE {
			f.say("it remarks on %s: %s", at, d.GetMessage())
			continue
		}
		f.fail("it refuses %s: %s (give values with --set GROUP.NAME=VALUE where the defaults do not do)", at, d.GetMessage())
	}
	second, err := rpc.Configure(ctx, request)
	if err != nil || !proto.Equal(first, second) {
		f.fail("configured again with the same values it answers something else (%v)", err)
	}
	again, err := s.getInfo(ctx, s.target)
	if err != nil {
		f.fail("after Configure: %v", err)
		return
	}
	if !proto.Equal(again, s.described) {
		f.fail("GetInfo says something else after Configure; it must be the same for the life of the process")
	}
	s.watches = wire.WatchesFromProto(first.GetWatches())
}

func (s *suite) checkWatches(f *finding) {
	seen, sources := map[string]bool{}, 0
	for _, w := range s.watches {
		at := fmt.Sprintf("watch %q", w.Name)
		switch {
		case w.Name == "":
			f.fail("a watch of %s has no name", w.GVR.Resource)
		case seen[w.Name]:
			f.fail("%s: the name is there twice", at)
		case w.GVR.Resource == "" || w.GVR.Version == "" || w.Kind == "":
			f.fail("%s: version, resource and kind must be set", at)
		}
		seen[w.Name] = true
		if w.Source {
			sources++
		}
		if _, err := labels.Parse(w.LabelSelector); err != nil {
			f.fail("%s: label selector %q: %v", at, w.LabelSelector, err)
		}
		if _, err := fields.ParseSelector(w.FieldSelector); err != nil {
			f.fail("%s: field selector %q: %v", at, w.FieldSelector, err)
		}
		for _, field := range w.Fields {
			if len(drivers.SplitField(field)) == 0 {
				f.fail("%s: field %q is no path", at, field)
			}
		}
		if len(w.Fields) == 0 {
			f.warn("%s: it names no fields, so that every change of an object reaches the driver", at)
		}
		if w.GVR.Group == "" && w.GVR.Resource == "secrets" {
			f.warn("%s: Secrets need the operator's consent, by [driver:%s] allow_watches", at, s.info.Name)
		}
	}
	s.checkFieldSelectors(f)
	if sources == 0 {
		f.fail("none of its watches is a source, so that it never translates anything")
	}
}

// checkFieldSelectors warns of fields that a cluster selects custom resources by only if their definition says so.
func (s *suite) checkFieldSelectors(f *finding) {
	for _, w := range s.watches {
		builtin := w.GVR.Group == "" || !strings.Contains(w.GVR.Group, ".") || strings.HasSuffix(w.GVR.Group, ".k8s.io")
		selector, err := fields.ParseSelector(w.FieldSelector)
		if builtin || err != nil {
			continue
		}
		for _, want := range selector.Requirements() {
			if want.Field != "metadata.name" && want.Field != "metadata.namespace" {
				f.warn("watch %q: a cluster selects %s by %s only if selectableFields of their definition names it", w.Name,
					w.GVR.Resource, want.Field)
			}
		}
	}
}

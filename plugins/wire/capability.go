// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// coreInfo is what the core said of itself.
type coreInfo struct {
	version      string
	capabilities []string
}

func (s *Server) noteCore(request *ravenv1.GetInfoRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core = coreInfo{request.GetCoreVersion(), request.GetCapabilities()}
}

// beyondCore returns an error for what a core that did not name a capability would not notice: it ignores fields that
// it does not know, so that a security group keeps the rules that let everything out, an object waits for ever, a VIP
// has no backends, or all objects of a watch count as those that select one.
func (s *Server) beyondCore(set drivers.Set, asked []drivers.Need) error {
	s.mu.Lock()
	core := s.core
	s.mu.Unlock()
	for _, c := range []struct {
		name string
		uses func() bool
	}{
		{drivers.BareGroups, func() bool { return slices.ContainsFunc(set.Resources, isBareGroup) }},
		{drivers.SoftReferences, func() bool { return slices.ContainsFunc(set.Resources, refersSoftly) }},
		{drivers.ChassisBackends, func() bool { return slices.ContainsFunc(set.Resources, servesByChassis) }},
		{drivers.ReverseSelectors, func() bool { return slices.ContainsFunc(asked, selects) }},
	} {
		if !slices.Contains(core.capabilities, c.name) && c.uses() {
			return &Error{Code: Terminal, Message: fmt.Sprintf(
				"the driver needs the capability %q, which Raven %s does not have: upgrade Raven, or use an older driver", c.name,
				cmp.Or(core.version, "(of unknown version)"))}
		}
	}
	return nil
}

func selects(need drivers.Need) bool { return need.Selects != drivers.Subject{} }

func isBareGroup(r drivers.Resource) bool {
	if r.Spec == nil || r.Spec.Kind() != drivers.KindSecurityGroup {
		return false
	}
	_, asked := drivers.Attributes(r.Spec)["default_rules"]
	return asked
}

func servesByChassis(r drivers.Resource) bool {
	if r.Spec == nil || r.Spec.Kind() != drivers.KindOVNLoadBalancer {
		return false
	}
	vips, _ := drivers.Attributes(r.Spec)["vips"].([]any)
	return slices.ContainsFunc(vips, func(element any) bool {
		vip, _ := element.(map[string]any)
		chassis, _ := vip["chassis"].([]any)
		return len(chassis) > 0
	})
}

func refersSoftly(r drivers.Resource) bool {
	if r.Spec == nil {
		return false
	}
	for _, value := range drivers.Attributes(r.Spec) {
		list, _ := value.([]any)
		for _, element := range list {
			if ref, ok := element.(drivers.Ref); ok && ref.Soft {
				return true
			}
		}
	}
	return false
}

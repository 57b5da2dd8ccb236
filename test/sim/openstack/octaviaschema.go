// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// balancerKinds returns the collections of Octavia that are simulated, by the segment of the URL.
func balancerKinds() map[string]*kind {
	out := map[string]*kind{}
	for _, k := range []*kind{loadBalancerKind(), listenerKind(), poolKind(), memberKind(), healthMonitorKind()} {
		out[k.path] = k
	}
	return out
}

// balancerOrder is the order of the kinds in a dump: what others belong to comes first.
func balancerOrder() []string {
	return []string{"loadbalancer", "listener", "pool", "member", "healthmonitor"}
}

func lbFields(own ...field) map[string]field {
	text := lbString(255)
	common := []field{
		{"id", none, nil, nil},
		{"project_id", post | none, lbString(36), nil},
		{"tenant_id", post | none | noFilter, lbString(36), nil},
		{"name", rw, text, ""},
		{"description", rw, text, ""},
		{"admin_state_up", rw, lbBool, true},
		{"tags", rw, lbTags, []any{}},
		{"provisioning_status", none, nil, nil},
		{"operating_status", none, nil, nil},
		{"created_at", none, nil, nil},
		{"updated_at", none, nil, nil},
	}
	out := make(map[string]field, len(common)+len(own))
	for _, f := range append(common, own...) {
		out[f.name] = f
	}
	return out
}

// lbForCreate checks a create's attributes and completes them with the defaults. Null is as if it were not given.
func lbForCreate(k *kind, in map[string]any) (map[string]any, error) {
	if err := lbUnknown(k, in, post); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(k.fields))
	for _, name := range slices.Sorted(maps.Keys(k.fields)) {
		f := k.fields[name]
		v, given := in[name]
		switch {
		case given && v != nil:
			x, err := f.lbValue(v)
			if err != nil {
				return nil, err
			}
			out[name] = x
		case f.flags&required != 0:
			return nil, invalidField(name, "", "Mandatory field missing.")
		case f.flags&none == 0:
			out[name] = f.def
		}
	}
	if p := str(out, "tenant_id"); p != "" && str(out, "project_id") == "" {
		out["project_id"] = p
	}
	delete(out, "tenant_id")
	return out, nil
}

// lbForUpdate checks an update's attributes. Null is the default.
func lbForUpdate(k *kind, in map[string]any) (map[string]any, error) {
	if err := lbUnknown(k, in, put); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		f := k.fields[name]
		if in[name] == nil {
			out[name] = f.def
			continue
		}
		x, err := f.lbValue(in[name])
		if err != nil {
			return nil, err
		}
		out[name] = x
	}
	return out, nil
}

func lbUnknown(k *kind, in map[string]any, flag int) error {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if k.fields[name].flags&flag == 0 {
			bad = append(bad, name)
		}
	}
	if bad == nil {
		return nil
	}
	plural := ""
	if len(bad) > 1 {
		plural = "s"
	}
	return octavia(400, "UnknownAttribute", "Unknown attribute%s for argument %s: %s", plural, k.name,
		strings.Join(bad, ", "))
}

// lbValue converts a given value. The error is the whole answer.
func (f field) lbValue(v any) (any, error) {
	x, err := f.conv(v)
	if own := new(apiError); errors.As(err, &own) {
		return nil, own
	}
	if err != nil {
		return nil, invalidField(f.name, v, err.Error())
	}
	return x, nil
}

func lbString(limit int) convert {
	return func(v any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, errors.New("Value should be string") //nolint:staticcheck // Octavia's words
		}
		if len([]rune(s)) > limit {
			//nolint:staticcheck // Octavia's words
			return nil, fmt.Errorf("Value should have a maximum character requirement of %d", limit)
		}
		return s, nil
	}
}

func lbBool(v any) (any, error) {
	if b, ok := v.(bool); ok {
		return b, nil
	}
	switch strings.ToLower(fmt.Sprint(v)) {
	case "true", "1", "yes", "on", "t", "y":
		return true, nil
	case "false", "0", "no", "off", "f", "n":
		return false, nil
	}
	return nil, fmt.Errorf("Unable to convert '%v' to bool", v) //nolint:staticcheck // Octavia's words
}

func lbInt(low, high int64) convert {
	return func(v any) (any, error) {
		n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		switch {
		case err != nil:
			return nil, fmt.Errorf("invalid literal for int() with base 10: '%v'", v)
		case n < low:
			return nil, fmt.Errorf("Value should be greater or equal to %d", low) //nolint:staticcheck // Octavia's words
		case n > high:
			return nil, fmt.Errorf("Value should be lower or equal to %d", high) //nolint:staticcheck // Octavia's words
		}
		return n, nil
	}
}

func lbFloat(v any) (any, error) {
	n, ok := v.(json.Number)
	f, err := n.Float64()
	if !ok || err != nil {
		return nil, fmt.Errorf("could not convert '%v' to float", v)
	}
	return f, nil
}

func lbEnum(values ...string) convert {
	return func(v any) (any, error) {
		s, ok := v.(string)
		if !ok || !slices.Contains(values, s) {
			sorted := slices.Sorted(slices.Values(values))
			//nolint:staticcheck // Octavia's words
			return nil, fmt.Errorf("Value should be one of: %s", strings.Join(sorted, ", "))
		}
		return s, nil
	}
}

func lbIP(v any) (any, error) {
	s, _ := v.(string)
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return nil, errors.New("Value should be IPv4 or IPv6 format") //nolint:staticcheck // Octavia's words
	}
	return s, nil
}

func lbCIDR(v any) (any, error) {
	s, _ := v.(string)
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()).String(), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return nil, errors.New("Value should be IPv4 or IPv6 CIDR format") //nolint:staticcheck // Octavia's words
	}
	return p.Masked().String(), nil
}

func lbUUID(v any) (any, error) {
	s, ok := v.(string)
	if !ok || !isUUID(s) {
		return nil, errors.New("Value should be UUID format") //nolint:staticcheck // Octavia's words
	}
	return s, nil
}

func lbTags(v any) (any, error) {
	x, err := lbList(lbString(255))(v)
	if err != nil {
		return nil, err
	}
	tags, _ := x.([]any)
	slices.SortFunc(tags, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return slices.Compact(tags), nil
}

func lbList(c convert) convert {
	return func(v any) (any, error) {
		in, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("Wrong type. Expected '[]', got '%T'", v) //nolint:staticcheck // Octavia's words
		}
		out := make([]any, 0, len(in))
		for _, item := range in {
			x, err := c(item)
			if err != nil {
				return nil, err
			}
			out = append(out, x)
		}
		return out, nil
	}
}

// lbNested takes an object with these fields, all of which are absent if they are not given.
func lbNested(name string, fields ...field) convert {
	k := &kind{name: name, fields: map[string]field{}}
	for _, f := range fields {
		f.flags |= post
		k.fields[f.name] = f
	}
	return func(v any) (any, error) {
		in, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("Wrong type. Expected '%s'", name) //nolint:staticcheck // Octavia's words
		}
		return lbForCreate(k, in)
	}
}

// unknownProtocol refuses protocols, and health monitors of them, that an older Octavia does not know, wherever they
// are in a create.
func (c *Cloud) unknownProtocol(in any, pool bool) error {
	if l, ok := in.([]any); ok {
		for _, element := range l {
			if err := c.unknownProtocol(element, pool); err != nil {
				return err
			}
		}
	}
	doc, ok := in.(map[string]any)
	if !ok || len(c.opts.NoProtocols) == 0 {
		return nil
	}
	known := listenerProtocols()
	if pool {
		known = poolProtocolNames()
	}
	for _, name := range []string{"protocol", "type"} {
		if p := str(doc, name); slices.Contains(c.opts.NoProtocols, p) {
			_, err := lbEnum(slices.DeleteFunc(known, func(x string) bool {
				return slices.Contains(c.opts.NoProtocols, x)
			})...)(p)
			return invalidField(name, p, err.Error())
		}
	}
	for _, below := range []string{"listeners", "pools", "default_pool", "healthmonitor"} {
		if err := c.unknownProtocol(doc[below], below == "pools" || below == "default_pool"); err != nil {
			return err
		}
	}
	return nil
}

// lbRaw leaves a value for later.
func lbRaw(v any) (any, error) { return v, nil }

func lbDict(v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("Wrong type. Expected a dictionary") //nolint:staticcheck // Octavia's words
	}
	return plain(m), nil
}

// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// convert checks a value of a request and brings it to the form in which it is kept. The error is Neutron's reason.
type convert func(v any) (any, error)

func asString(limit int) convert {
	return func(v any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("'%v' is not a valid string.", v) //nolint:revive,staticcheck // Neutron's words
		}
		if limit > 0 && len([]rune(s)) > limit {
			return nil, fmt.Errorf("'%s' exceeds maximum length of %d.", s, limit) //nolint:revive,staticcheck // Neutron's words
		}
		return s, nil
	}
}

func orNil(c convert) convert {
	return func(v any) (any, error) {
		if v == nil {
			return nil, nil //nolint:nilnil // null is a value here
		}
		return c(v)
	}
}

func asBool(v any) (any, error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case string:
		switch strings.ToLower(x) {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
	case json.Number:
		switch x.String() {
		case "1":
			return true, nil
		case "0":
			return false, nil
		}
	}
	return nil, invalidInput("'%v' cannot be converted to boolean", v)
}

func asInt(low, high int64) convert {
	return func(v any) (any, error) {
		n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		if err != nil {
			return nil, invalidInput("'%v' is not an integer", v)
		}
		if n < low {
			//nolint:revive,staticcheck // Neutron's words
			return nil, fmt.Errorf("'%d' is too small - must be at least '%d'.", n, low)
		}
		if n > high {
			//nolint:revive,staticcheck // Neutron's words
			return nil, fmt.Errorf("'%d' is too large - must be no larger than '%d'.", n, high)
		}
		return n, nil
	}
}

func isUUID(s string) bool {
	_, err := uuid.Parse(s)
	return err == nil
}

func asUUID(v any) (any, error) {
	s, ok := v.(string)
	if !ok || !isUUID(s) {
		return nil, fmt.Errorf("'%v' is not a valid UUID.", v) //nolint:revive,staticcheck // Neutron's words
	}
	return s, nil
}

func asIP(v any) (any, error) {
	s, _ := v.(string)
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return nil, fmt.Errorf("'%v' is not a valid IP address.", v) //nolint:revive,staticcheck // Neutron's words
	}
	return a.String(), nil
}

// asSubnet takes a CIDR without host bits.
func asSubnet(v any) (any, error) {
	s, _ := v.(string)
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return nil, fmt.Errorf("'%v' is not a valid IP subnet.", v) //nolint:revive,staticcheck // Neutron's words
	}
	if p.Masked() != p {
		//nolint:revive,staticcheck // Neutron's words
		return nil, fmt.Errorf("'%v' isn't a recognized IP subnet cidr, '%v' is recommended.", v, p.Masked())
	}
	return p.String(), nil
}

// asCIDR takes an address or a prefix, with host bits or not.
func asCIDR(v any) (any, error) {
	s, _ := v.(string)
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String(), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return nil, fmt.Errorf("'%v' is not a valid IP subnet.", v) //nolint:revive,staticcheck // Neutron's words
	}
	return p.String(), nil
}

func asMAC(v any) (any, error) {
	s, _ := v.(string)
	m, err := net.ParseMAC(s)
	if err != nil || len(m) != 6 || m.String() == "00:00:00:00:00:00" {
		return nil, fmt.Errorf("'%v' is not a valid MAC address.", v) //nolint:revive,staticcheck // Neutron's words
	}
	return m.String(), nil
}

func oneOf(values ...string) convert {
	return func(v any) (any, error) {
		for _, want := range values {
			if v == want {
				return v, nil
			}
		}
		return nil, fmt.Errorf("'%v' is not in %s.", v, pyList(values)) //nolint:revive,staticcheck // Neutron's words
	}
}

// listOf converts every item, and refuses one that is there twice if unique is set.
func listOf(c convert, unique bool) convert {
	return func(v any) (any, error) {
		in, ok := v.([]any)
		if !ok {
			if v == nil {
				return []any{}, nil
			}
			return nil, fmt.Errorf("'%v' is not a list.", v) //nolint:revive,staticcheck // Neutron's words
		}
		out := make([]any, 0, len(in))
		seen := map[string]bool{}
		for _, item := range in {
			x, err := c(item)
			if err != nil {
				return nil, err
			}
			key := fmt.Sprint(x)
			if unique && seen[key] {
				return nil, fmt.Errorf("Duplicate items in the list: '%s'.", key) //nolint:revive,staticcheck // Neutron's words
			}
			seen[key] = true
			out = append(out, x)
		}
		return out, nil
	}
}

// dictOf takes an object with these keys only; those of need must be there.
func dictOf(keys map[string]convert, need ...string) convert {
	return func(v any) (any, error) {
		in, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("'%v' is not a dictionary.", v) //nolint:revive,staticcheck // Neutron's words
		}
		out := make(map[string]any, len(in))
		for k, x := range in {
			c, known := keys[k]
			if !known {
				return nil, fmt.Errorf("Unexpected key '%s'.", k) //nolint:revive,staticcheck // Neutron's words
			}
			y, err := c(x)
			if err != nil {
				return nil, err
			}
			out[k] = y
		}
		for _, k := range need {
			if _, there := out[k]; !there {
				//nolint:revive,staticcheck // Neutron's words
				return nil, fmt.Errorf("Validation of dictionary's keys failed. Expected keys: %s.", pyList(need))
			}
		}
		return out, nil
	}
}

func asDict(v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, fmt.Errorf("'%v' is not a dictionary.", v) //nolint:revive,staticcheck // Neutron's words
	}
	return plain(m), nil
}

// plain turns the numbers of a decoded document into int64, or float64 where they are not whole.
func plain(v any) any {
	switch x := v.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		f, err := x.Float64()
		if err != nil {
			return x.String()
		}
		return f
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, y := range x {
			out[k] = plain(y)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, y := range x {
			out[i] = plain(y)
		}
		return out
	default:
		return v
	}
}

// pyList words a list as Python does.
func pyList(values []string) string {
	q := make([]string, len(values))
	for i, v := range values {
		q[i] = "'" + v + "'"
	}
	return "[" + strings.Join(q, ", ") + "]"
}

func str(doc map[string]any, key string) string {
	s, _ := doc[key].(string)
	return s
}

func integer(doc map[string]any, key string) int64 {
	n, _ := doc[key].(int64)
	return n
}

func truth(doc map[string]any, key string) bool {
	b, _ := doc[key].(bool)
	return b
}

func list(doc map[string]any, key string) []any {
	l, _ := doc[key].([]any)
	return l
}

func stringList(v any) []string {
	l, _ := v.([]any)
	out := make([]string, 0, len(l))
	for _, x := range l {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

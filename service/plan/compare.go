package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// difference is one managed attribute that is not as it should be.
type difference struct {
	name      string
	old, new  any // new as an update writes it
	immutable bool
	waits     []Wait // the refs in it that do not resolve yet: whether it differs is not known
}

func (d difference) String() string {
	return fmt.Sprintf("%s is %s instead of %s", d.name, brief(d.old), brief(d.new))
}

// brief shows a value in a sentence.
func brief(value any) string {
	var text string
	switch v := value.(type) {
	case nil:
		return "unset"
	case string:
		text = fmt.Sprintf("%q", v)
	default:
		text = fmt.Sprint(v)
		if doc, err := json.Marshal(v); err == nil {
			text = string(doc)
		}
	}
	if short := cut(text, 80); short != text {
		return short + "…"
	}
	return text
}

// compare returns the managed attributes of a resource that differ from the observed ones, in the order of the kind's schema.
// What is not in desired is unmanaged and never looked at.
func (c *computer) compare(d *Desired, o *Observed) []difference {
	if d.Kind == drivers.KindRouterInterface {
		return c.compareInterface(d, o)
	}
	var diffs []difference
	for _, a := range c.schema(d.Kind) {
		want, managed := d.Attrs[a.Name]
		have, shown := o.Attrs[a.Name]
		switch {
		case !managed, writeOnly(d.Kind, a.Name), !shown && a.BestEffort, inBalancer(d.Kind, a.Name):
			continue
		}
		if d.Kind == drivers.KindOVNLoadBalancer && a.Name == "vips" {
			want = c.reachable(want)
		}
		value, waits := c.resolve(want)
		if len(waits) > 0 {
			diffs = append(diffs, difference{name: a.Name, old: have, new: value, immutable: a.Immutable, waits: waits})
		} else if value, same := matches(a, value, have, o.Attrs, d.Unmade); !same {
			diffs = append(diffs, difference{name: a.Name, old: have, new: writable(d.Kind, a.Name, value), immutable: a.Immutable})
		}
	}
	return complete(d, o, diffs)
}

// inBalancer says which attributes of a load balancer are parts of it: see balance.
func inBalancer(kind drivers.Kind, name string) bool {
	return kind == drivers.KindLoadBalancer && (name == "listeners" || name == "pools" || name == "vip_sg_ids")
}

// writeOnly says which attributes Neutron takes and never shows again.
func writeOnly(kind drivers.Kind, name string) bool {
	return kind == drivers.KindSubnet && name == "prefixlen" || kind == drivers.KindFloatingIP && name == "subnet_id"
}

// matches says whether a wanted value and the observed one are the same. Where they are not, it returns what to write.
func matches(a drivers.Attribute, want, have any, doc map[string]any, unmade bool) (any, bool) {
	switch a.Name {
	case "fixed_ips":
		return matchFixedIPs(want, have, doc)
	case "external_gateway_info":
		return matchGateway(want, have)
	case "additional_vips":
		return want, matchVIPs(want, have, unmade)
	case "allowed_address_pairs":
		// Neutron fills in the port's own MAC address.
		if withMAC(want, doc["mac_address"]) == withMAC(have, doc["mac_address"]) {
			return nil, true
		}
		return want, false
	}
	return want, canonical(a.Name, want, a.Unordered) == canonical(a.Name, have, a.Unordered)
}

func withMAC(pairs, mac any) string {
	list, _ := pairs.([]any)
	texts := make([]any, 0, len(list))
	for _, element := range list {
		pair, ok := element.(map[string]any)
		if ok && canonical("mac_address", pair["mac_address"], false) == "" {
			pair = maps.Clone(pair)
			pair["mac_address"] = mac
		}
		texts = append(texts, pair)
	}
	return canonicalList("allowed_address_pairs", texts, true)
}

// matchFixedIPs compares only the parts that are given. Each wanted address takes the observed one that fits it; what is left
// over differs, but for the addresses that Neutron itself adds on subnets with address autoconfiguration. What it returns to
// write names the observed addresses in full, so that an update of one does not exchange the others.
func matchFixedIPs(want, have any, doc map[string]any) (any, bool) {
	wanted, _ := want.([]any)
	observed, _ := have.([]any)
	taken := make([]bool, len(observed))
	out := make([]any, len(wanted))
	same := true
	// The most specific first, so that a wish for any address of a subnet does not take one that is wished for by name.
	order := make([]int, len(wanted))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return specific(wanted[b]) - specific(wanted[a]) })
	for _, i := range order {
		out[i] = wanted[i]
		found := false
		for j, element := range observed {
			if !taken[j] && covers(wanted[i], element) {
				taken[j], found = true, true
				out[i] = map[string]any{"subnet_id": part(element, "subnet_id"), "ip_address": part(element, "ip_address")}
				break
			}
		}
		same = same && found
	}
	for j, element := range observed {
		if !taken[j] && !autoconfigured(element, doc["mac_address"]) {
			same = false
		}
	}
	return out, same
}

func part(element any, name string) any {
	m, _ := element.(map[string]any)
	return m[name]
}

func specific(want any) int {
	n := 0
	if part(want, "ip_address") != nil {
		n += 2
	}
	if part(want, "subnet_id") != nil {
		n++
	}
	return n
}

func covers(want, have any) bool {
	for _, name := range [...]string{"subnet_id", "ip_address"} {
		if text := canonical(name, part(want, name), false); text != "" && text != canonical(name, part(have, name), false) {
			return false
		}
	}
	return true
}

// autoconfigured says whether an address is the one that follows from the port's MAC address (RFC 4291, appendix A).
func autoconfigured(element, mac any) bool {
	text, _ := part(element, "ip_address").(string)
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() {
		return false
	}
	digits := strings.ReplaceAll(canonical("mac_address", mac, false), ":", "")
	b := addr.As16()
	return len(digits) == 12 && digits[:6]+"fffe"+digits[6:] == fmt.Sprintf("%02x%x", b[8]^2, b[9:])
}

// matchGateway compares the parts that are managed. A wanted gateway with no network means none.
func matchGateway(want, have any) (any, bool) {
	if canonical("network_id", part(want, "network_id"), false) == "" {
		return map[string]any{}, canonical("network_id", part(have, "network_id"), false) == ""
	}
	for _, name := range [...]string{"network_id", "enable_snat"} {
		if value := part(want, name); value != nil && canonical(name, value, false) != canonical(name, part(have, name), false) {
			return want, false
		}
	}
	return want, true
}

// complete adds to what changes the attributes that Neutron wants to see with it.
func complete(d *Desired, o *Observed, diffs []difference) []difference {
	if d.Kind != drivers.KindFloatingIP {
		return diffs
	}
	address := slices.IndexFunc(diffs, func(d difference) bool { return d.name == "fixed_ip_address" })
	port := slices.ContainsFunc(diffs, func(d difference) bool { return d.name == "port_id" })
	if address >= 0 && !port && canonical("port_id", o.Attrs["port_id"], false) != "" {
		diffs = append(diffs, difference{name: "port_id", old: o.Attrs["port_id"], new: o.Attrs["port_id"]})
	}
	return diffs
}

// compareInterface compares a router interface with the port that it is. Another router counts only once the port is attached.
func (c *computer) compareInterface(d *Desired, o *Observed) []difference {
	addresses, _ := o.Attrs["fixed_ips"].([]any)
	var first any
	if len(addresses) > 0 {
		first = addresses[0]
	}
	have := map[string]any{
		"router_id": o.Attrs["device_id"], "network_id": o.Attrs["network_id"],
		"subnet_id": part(first, "subnet_id"), "ip_address": part(first, "ip_address"),
	}
	var diffs []difference
	for _, a := range c.schema(d.Kind) {
		want, managed := d.Attrs[a.Name]
		if !managed || a.Name == "router_id" && !attached(o) {
			continue
		}
		value, waits := c.resolve(want)
		if len(waits) > 0 {
			diffs = append(diffs, difference{name: a.Name, old: have[a.Name], new: value, immutable: true, waits: waits})
			continue
		}
		text := canonical(a.Name, value, false)
		if text == "" || text == canonical(a.Name, have[a.Name], false) {
			continue
		}
		diffs = append(diffs, difference{name: a.Name, old: have[a.Name], new: value, immutable: true})
	}
	return diffs
}

// attached says whether a router interface's port is at its router.
func attached(o *Observed) bool { return canonical("device_id", o.Attrs["device_id"], false) != "" }

// schema returns the attributes of a kind, with those that plan knows beside the specs'.
func (c *computer) schema(kind drivers.Kind) []drivers.Attribute {
	attributes, ok := c.schemas[kind]
	if !ok {
		attributes = drivers.Schema(kind)
		if kind == drivers.KindRouter {
			attributes = append(attributes, drivers.Attribute{Name: "routes", Unordered: true})
		}
		c.schemas[kind] = attributes
	}
	return attributes
}

// resolve returns a value with its refs replaced, and a wait for each ref that does not resolve and stays.
func (c *computer) resolve(value any) (any, []Wait) {
	switch v := value.(type) {
	case drivers.Ref:
		if found, ok := c.lookup(v); ok {
			return found, nil
		}
		return v, []Wait{{Ref: &v, Message: fmt.Sprintf("waiting for the %s", v)}}
	case []any:
		out := make([]any, len(v))
		var waits []Wait
		for i, element := range v {
			var more []Wait
			out[i], more = c.resolve(element)
			waits = append(waits, more...)
		}
		return out, waits
	case map[string]any:
		out := make(map[string]any, len(v))
		var waits []Wait
		for _, name := range slices.Sorted(maps.Keys(v)) {
			var more []Wait
			out[name], more = c.resolve(v[name])
			waits = append(waits, more...)
		}
		return out, waits
	}
	return value, nil
}

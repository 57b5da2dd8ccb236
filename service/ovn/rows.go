// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/service/plan"
)

// A resource and its rows. A load balancer of Raven's is one Load_Balancer row for each protocol and affinity of its
// VIPs, since OVN has these per row, not per VIP:
//
//	name          <name>:<part>                     for people
//	external_ids  raven:cluster, owner, name,
//	              policy, source                    the identity, as everywhere
//	              raven:part                        tcp, or tcp-10800 with an affinity of 10800 s, or tcp-external for VIPs that are reached
//	                                                from outside; tcp-local4 or tcp-local6 with backends for each chassis (see
//	                                                templates.go); none for a load balancer without VIPs
//	              raven:group                       the ID of the group that it belongs to
//	options       reject=true                       who connects to a VIP without backends is told so
//	              ct_flush=true                     with UDP: flows to a backend that goes do not linger (see outdated). Not with TCP and SCTP: who is
//	                                                connected stays so until the backend ends it, as with kube-proxy
//	              neighbor_responder=all            of external parts only: routers answer for a VIP outside their ports' subnets, too, such
//	                                                as a floating IP of another subnet of the external network than the gateway's
//
//	selection_fields  eth_src, ip_src                with an affinity: a client's connections go to one backend as long as the backends are the same. That
//	                                                is not OVN's option affinity_timeout, with which it learns a client's backend by the first connection, and
//	                                                drops that one (see docs/adr/0015). ip_src means IPv4 alone: an IPv6 client is known by its MAC address
//
// A group of Raven's is one Load_Balancer_Group row; that table has no external_ids, so that the identity is in its
// name. The UUIDs of all rows of Raven's follow from the identity: a second row for the same part is refused by the
// database itself, and a row that is in such a place is Raven's, whatever another client has made of its external_ids
// or its name.
//
// health_check and ip_port_mappings are empty, and selection_fields without an affinity. What others add to options
// and external_ids stays. A part whose row is not as it would be written is as good as not there: the load balancer
// then shows no VIPs, and is repaired as a whole.
const (
	clusterID = "raven:cluster"
	ownerID   = "raven:owner"
	nameID    = "raven:name"
	policyID  = "raven:policy"
	sourceID  = "raven:source"
	partID    = "raven:part"
	groupID   = "raven:group"

	affinityOption  = "affinity_timeout" // Raven sets it no more
	responderOption = "neighbor_responder"
	flushOption     = "ct_flush"
	noPart          = "none"
	externalPart    = "-external"
	titleWord       = "name="
)

// vip is one VIP, in the form that makes two of the same comparable.
type vip struct {
	protocol string // lower case
	at       netip.AddrPort
	affinity int64
	external bool   // reached from outside, through a router
	backends string // as OVN has them, sorted
	// chassis is what clients on each chassis have in place of backends: a line for each, its ID, a space and the backends.
	chassis string
}

func (v vip) part() string {
	part := v.protocol
	if v.chassis != "" {
		if part += localPart + "6"; v.at.Addr().Is4() {
			part = v.protocol + localPart + "4"
		}
	}
	if v.affinity > 0 {
		part += "-" + strconv.FormatInt(v.affinity, 10)
	}
	if v.external {
		part += externalPart
	}
	return part
}

// balancer is a load balancer of Raven's, as it should be or as its rows have it.
type balancer struct {
	identity plan.Identity
	title    string
	group    string
	vips     map[string]vip // by protocol, address and port
}

// row is one Load_Balancer row as it should be. In it are only the options and external ids that Raven sets.
type row struct {
	part    string
	name    string
	proto   string
	vips    map[string]string
	options map[string]string
	fields  []string // by which a backend is chosen; nil: by all that a connection is known by
	ids     map[string]string
	// variables are those that the row refers to. They are there only with templates.
	variables variables
}

// rows returns the rows of a load balancer, by part. Without templates the database has no table for variables.
func (b *balancer) rows(templates bool) map[string]row {
	ids := identityIDs(b.identity)
	ids[groupID] = b.group
	rows := map[string]row{}
	add := func(part string, v vip) row {
		r, ok := rows[part]
		if !ok {
			r = row{
				part: part, name: b.title + ":" + part, proto: v.protocol, vips: map[string]string{},
				options: map[string]string{"reject": "true"}, ids: maps.Clone(ids), variables: variables{},
			}
			if v.protocol == "udp" {
				r.options[flushOption] = "true"
			}
			r.ids[partID] = part
			if v.affinity > 0 {
				r.fields = []string{"eth_src", "ip_src"}
			}
			if v.external {
				r.options[responderOption] = "all"
			}
			rows[part] = r
		}
		return r
	}
	for _, v := range b.vips {
		r := add(v.part(), v)
		switch {
		case v.chassis == "":
			r.vips[v.at.String()] = v.backends
			continue
		case templates:
			r.template(ownerOf(rowUUID(drivers.KindOVNLoadBalancer, b.identity, r.part)), v, r.variables)
		default:
			r.vips[v.at.String()] = v.everyBackend()
		}
		noteChassis(r.ids, v)
	}
	if len(rows) == 0 {
		add(noPart, vip{})
	}
	return rows
}

// is says whether a row of the database is as it should be.
func (r row) is(have *nbdb.LoadBalancer) bool {
	return plain(have) && have.Name == r.name && protocolOf(have) == r.proto && maps.Equal(have.Vips, r.vips) &&
		within(r.ids, have.ExternalIDs) && within(r.options, have.Options) &&
		slices.Equal(r.fields, slices.Sorted(slices.Values(have.SelectionFields))) &&
		have.Options[affinityOption] == "" && have.Options[flushOption] == r.options[flushOption] &&
		have.Options[templateOption] == r.options[templateOption] && have.ExternalIDs[chassisIDs] == r.ids[chassisIDs]
}

// plain says whether a row has nothing in the columns that are empty in rows of Raven's: health checks would take
// backends away that Kubernetes calls ready.
func plain(have *nbdb.LoadBalancer) bool { return len(have.HealthCheck)+len(have.IPPortMappings) == 0 }

func protocolOf(have *nbdb.LoadBalancer) string {
	if have.Protocol == nil {
		return ""
	}
	return *have.Protocol
}

func within(part, whole map[string]string) bool {
	for key, value := range part {
		if whole[key] != value {
			return false
		}
	}
	return true
}

// identityIDs writes an identity as external ids.
func identityIDs(i plan.Identity) map[string]string {
	k := i.Key()
	ids := map[string]string{
		clusterID: k.Cluster, ownerID: ownerText(k), nameID: k.Name, policyID: string(cmp.Or(i.Policy, drivers.Delete)),
	}
	if i.Source != "" {
		ids[sourceID] = i.Source
	}
	return ids
}

func ownerText(k plan.Key) string {
	if k.Driver == plan.Shared && k.UID == "" {
		return k.Driver
	}
	return k.Driver + ":" + k.UID
}

// identityOf reads an identity back. It returns false unless it is whole.
func identityOf(ids map[string]string) (plan.Identity, bool) {
	if ids[clusterID] == "" {
		return plan.Identity{}, false
	}
	var words []string
	for _, name := range []string{clusterID, ownerID, nameID, policyID, sourceID} {
		words = append(words, name+"="+ids[name])
	}
	return plan.Parse(words, "")
}

// groupName is the name of a group's row: its identity, and its name for people behind that.
func groupName(i plan.Identity, title string) string {
	if title == "" {
		return i.Description()
	}
	return i.Description() + " " + titleWord + url.PathEscape(title)
}

// parseGroup reads a group's name back. It returns false for a group that is not Raven's.
func parseGroup(name string) (identity plan.Identity, title string, ok bool) {
	identity, ok = plan.Parse(nil, name)
	for word := range strings.FieldsSeq(name) {
		if text, found := strings.CutPrefix(word, titleWord); found {
			if plain, err := url.PathUnescape(text); err == nil {
				title = plain
			}
		}
	}
	return identity, title, ok
}

// ID returns what a resource of an identity is called. It lasts, whatever becomes of its rows.
func ID(kind drivers.Kind, identity plan.Identity) string {
	k := identity.Key()
	return fmt.Sprintf("%s:%s/%s", kind, ownerText(k), k.Name)
}

// rowUUID is the UUID of a row of Raven's: a hash of the identity and the part, so that no row is made twice.
func rowUUID(kind drivers.Kind, identity plan.Identity, part string) string {
	k := identity.Key()
	sum := sha256.Sum256(
		[]byte(strings.Join([]string{"raven", string(kind), k.Cluster, k.Driver, k.UID, k.Name, part}, "\x00")),
	)
	sum[6] = sum[6]&0x0f | 0x80 // version 8: of its maker's own devising
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// chassisUUID is the UUID of a row of Chassis_Template_Var that Raven makes. A chassis has one, whoever makes it.
func chassisUUID(chassis string) string {
	return rowUUID(nbdb.ChassisTemplateVarTable, plan.Identity{}, chassis)
}

// devised says whether a UUID may be one of rowUUID's.
func devised(uuid string) bool { return len(uuid) == 36 && uuid[14] == '8' }

// take puts attributes, as drivers.Attributes gives them with all refs resolved, into the load balancer.
func (b *balancer) take(attrs map[string]any) error {
	if title, ok := attrs["name"].(string); ok {
		b.title = clean(title)
	}
	if group, ok := attrs["group_id"].(string); ok {
		b.group = group
	}
	list, managed := attrs["vips"].([]any)
	if !managed {
		return nil
	}
	b.vips = map[string]vip{}
	for _, element := range list {
		v, err := vipOf(element)
		if err != nil {
			return err
		}
		key := v.protocol + " " + v.at.String()
		if other, twice := b.vips[key]; twice && other != v {
			return &InvalidError{fmt.Sprintf("VIP %s is wanted twice, with other backends or another affinity", key)}
		}
		b.vips[key] = v
	}
	return nil
}

// clean drops what is no text to the database: it would end the connection.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

func vipOf(element any) (vip, error) {
	doc, _ := element.(map[string]any)
	at, err := addrPort(doc["address"], doc["port"])
	if err != nil {
		return vip{}, err
	}
	protocol, _ := doc["protocol"].(string)
	v := vip{protocol: strings.ToLower(protocol), at: at}
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, v.protocol) {
		return vip{}, &InvalidError{fmt.Sprintf("VIP %s has the protocol %q, which OVN does not balance", at, protocol)}
	}
	v.affinity, _ = doc["affinity_timeout"].(int64)
	v.external, _ = doc["external"].(bool)
	if v.backends, err = backendsOf(at, doc); err != nil {
		return vip{}, err
	}
	byChassis := map[string]string{}
	list, _ := doc["chassis"].([]any)
	for _, element := range list {
		doc, _ := element.(map[string]any)
		id, _ := doc["id"].(string)
		if byChassis[id], err = backendsOf(at, doc); err != nil {
			return vip{}, err
		}
	}
	v.chassis = chassisText(byChassis)
	return v, nil
}

// backendsOf reads backends of a VIP.
func backendsOf(at netip.AddrPort, doc map[string]any) (string, error) {
	list, _ := doc["backends"].([]any)
	backends := make([]netip.AddrPort, 0, len(list))
	for _, element := range list {
		doc, _ := element.(map[string]any)
		backend, err := addrPort(doc["address"], doc["port"])
		if err != nil {
			return "", err
		}
		if backend.Addr().Is4() != at.Addr().Is4() {
			return "", &InvalidError{fmt.Sprintf("backend %s is not of the IP version of its VIP %s", backend, at)}
		}
		backends = append(backends, backend)
	}
	return joined(backends), nil
}

func joined(backends []netip.AddrPort) string {
	slices.SortFunc(backends, netip.AddrPort.Compare)
	backends = slices.Compact(backends)
	texts := make([]string, len(backends))
	for i, backend := range backends {
		texts[i] = backend.String()
	}
	return strings.Join(texts, ",")
}

func addrPort(address, port any) (netip.AddrPort, error) {
	text, _ := address.(string)
	number, _ := port.(int64)
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || number < 1 || number > 65535 {
		return netip.AddrPort{}, &InvalidError{fmt.Sprintf("%v port %v is not an address and a port", address, port)}
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), nil
}

// attributes is the reverse of take.
func (b *balancer) attributes() map[string]any {
	list := make([]any, 0, len(b.vips))
	for _, key := range slices.Sorted(maps.Keys(b.vips)) {
		v := b.vips[key]
		doc := map[string]any{
			"protocol": strings.ToUpper(v.protocol), "address": v.at.Addr().String(), "port": int64(v.at.Port()),
			"backends": backendList(v.backends),
		}
		if v.affinity > 0 {
			doc["affinity_timeout"] = v.affinity
		}
		if v.external {
			doc["external"] = true
		}
		if byChassis := v.byChassis(); byChassis != nil {
			chassis := make([]any, 0, len(byChassis))
			for _, id := range slices.Sorted(maps.Keys(byChassis)) {
				chassis = append(chassis, map[string]any{"id": id, "backends": backendList(byChassis[id])})
			}
			doc["chassis"] = chassis
		}
		list = append(list, doc)
	}
	return map[string]any{"name": b.title, "group_id": b.group, "vips": list}
}

func backendList(text string) []any {
	backends := []any{}
	for text := range strings.SplitSeq(text, ",") {
		if backend, err := netip.ParseAddrPort(text); err == nil {
			backends = append(backends, map[string]any{"address": backend.Addr().String(), "port": int64(backend.Port())})
		}
	}
	return backends
}

// read makes a load balancer of its rows, and says whether they and their variables are exactly what it would be
// written as. Rows that are there twice are not.
func (b *rowIndex) read(rows []*nbdb.LoadBalancer) (lb *balancer, whole bool) {
	lb, whole = &balancer{vips: map[string]vip{}}, true
	byPart := map[string]*nbdb.LoadBalancer{}
	for _, have := range rows {
		identity, _ := identityOf(have.ExternalIDs)
		if part := have.ExternalIDs[partID]; byPart[part] == nil {
			byPart[part] = have
		} else {
			whole = false
		}
		if lb.identity.Name == "" {
			lb.identity, lb.group = identity, have.ExternalIDs[groupID]
			lb.title, _ = strings.CutSuffix(have.Name, ":"+have.ExternalIDs[partID])
		}
		lb.readVIPs(have)
	}
	wanted := lb.rows(b.templates)
	if len(wanted) != len(byPart) {
		return lb, false
	}
	for part, want := range wanted {
		if have := byPart[part]; have == nil || !want.is(have) {
			return lb, false
		}
		owner := ownerOf(rowUUID(drivers.KindOVNLoadBalancer, lb.identity, part))
		if !want.variables.equal(b.variables[owner]) {
			return lb, false
		}
	}
	return lb, whole
}

// readVIPs takes the VIPs of one row. What OVN would not understand is left out, so that the row is not whole.
func (b *balancer) readVIPs(have *nbdb.LoadBalancer) {
	part := have.ExternalIDs[partID]
	plainPart := strings.NewReplacer(externalPart, "", localPart+"4", "", localPart+"6", "").Replace(part)
	_, seconds, _ := strings.Cut(plainPart, "-")
	affinity, _ := strconv.ParseInt(seconds, 10, 64)
	local := chassisOf(have)
	for at, chassis := range local {
		v := vip{protocol: protocolOf(have), at: at, affinity: affinity, chassis: chassis}
		b.vips[v.protocol+" "+at.String()] = v
	}
	if len(local) > 0 {
		return
	}
	for text, backends := range have.Vips {
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			continue
		}
		v := vip{
			protocol: protocolOf(have), at: at, affinity: affinity, backends: backends,
			external: strings.HasSuffix(part, externalPart),
		}
		b.vips[v.protocol+" "+at.String()] = v
	}
}

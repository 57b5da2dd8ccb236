// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"net/http"
)

const maxWeight = 256

func memberFields() []field {
	return []field{
		{"address", post | required, lbIP, nil},
		{"protocol_port", post | required, lbInt(1, maxPort), nil},
		{"weight", rw, lbInt(0, maxWeight), int64(1)},
		{"backup", rw, lbBool, false},
		{"subnet_id", post, lbUUID, nil},
		{"monitor_port", rw, lbInt(1, maxPort), nil},
		{"monitor_address", rw, lbIP, nil},
	}
}

func memberKind() *kind {
	fields := lbFields(append(memberFields(), field{"pool_id", post | required | noFilter, lbUUID, nil})...)
	delete(fields, "description")
	return &kind{
		name: "member", plural: "members", path: "members", index: []string{"pool_id", "address"}, fields: fields,
		create: createMember, update: updateMember, remove: removePart,
	}
}

func createMember(t *tx, in map[string]any) (*object, error) {
	pool, err := t.balancer("pool", str(in, "pool_id"))
	if err != nil {
		return nil, err
	}
	if !t.c.room(pool.project, "member", 1) {
		return nil, quotaMet("Member")
	}
	lb, parents, err := t.lockPool(pool, true)
	if err != nil {
		return nil, err
	}
	p := t.c.providerOf(lb)
	o, err := t.newMember(p, lb, pool, in)
	if err != nil {
		return nil, err
	}
	t.carryOut(lb, p.Work.Update, []*object{o}, parents...)
	return o, nil
}

func (t *tx) newMember(p *Provider, lb, pool *object, in map[string]any) (*object, error) {
	in["project_id"], in["pool_id"] = pool.project, pool.id
	address, port := str(in, "address"), integer(in, "protocol_port")
	if address == "169.254.169.254" {
		return nil, octavia(http.StatusBadRequest, "InvalidOption", "%s is not a valid option for member address", address)
	}
	if s := str(in, "subnet_id"); s != "" {
		if _, ok := t.get("subnet", s); !ok {
			return nil, noSubresource("Subnet", s)
		}
	}
	for o := range t.c.by("member", "address", address) {
		if o.doc["pool_id"] == pool.id && integer(o.doc, "protocol_port") == port {
			return nil, octavia(http.StatusConflict, "DuplicateMemberEntry",
				"Another member on this pool is already using ip %s on protocol_port %d", address, port)
		}
	}
	if err := t.checkMember(p, lb, in); err != nil {
		return nil, err
	}
	in["operating_status"] = noMonitor
	if len(t.c.by("healthmonitor", "pool_id", pool.id)) > 0 {
		in["operating_status"] = offline
	}
	return t.lbInsert(t.c.lbKinds["members"], in), nil
}

func updateMember(t *tx, o *object, in map[string]any) error {
	return t.updatePart(o, in, func(p *Provider, lb *object) error {
		return t.checkMember(p, lb, cloneWith(o.doc, in))
	})
}

// batch is PUT of a pool's members: what is there is updated, what is new created, and the others are deleted unless
// additive_only is set.
func (t *tx) batch(r *http.Request, where target, in map[string]any) (response, error) {
	pool, err := t.balancer("pool", where.parent)
	if err != nil {
		return response{}, err
	}
	wanted, err := batchBody(pool, in)
	if err != nil {
		return response{}, err
	}
	had := t.c.children("member", "pool_id", pool.id)
	if len(wanted) == 0 && len(had) == 0 {
		return response{status: http.StatusAccepted}, nil
	}
	lb, parents, err := t.lockPool(pool, true)
	if err != nil {
		return response{}, err
	}
	additive := pythonTruth(r.URL.Query().Get("additive_only")) && !t.c.opts.NoAdditiveMembers
	changed, err := t.replaceMembers(lb, pool, had, wanted, additive)
	if err != nil {
		return response{}, err
	}
	t.carryOut(lb, t.c.providerOf(lb).Work.Update, changed, parents...)
	return response{status: http.StatusAccepted, items: len(wanted)}, nil
}

func batchBody(pool *object, in map[string]any) ([]map[string]any, error) {
	items, ok := in["members"].([]any)
	if !ok {
		return nil, invalidField("members", "", "Mandatory field missing.")
	}
	k := memberKind()
	wanted := make([]map[string]any, 0, len(items))
	for _, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, invalidField("members", item, "Wrong type. Expected 'MemberPOST'")
		}
		doc, err := lbForCreate(k, cloneWith(m, map[string]any{"pool_id": pool.id}))
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, doc)
	}
	return wanted, nil
}

// replaceMembers returns what it made PENDING_*.
func (t *tx) replaceMembers(
	lb, pool *object, had []*object, wanted []map[string]any, additive bool,
) ([]*object, error) {
	p := t.c.providerOf(lb)
	key := func(doc map[string]any) string { return fmt.Sprintf("%v %v", doc["address"], doc["protocol_port"]) }
	byKey := map[string]*object{}
	for _, o := range had {
		byKey[key(o.doc)] = o
	}
	var fresh []map[string]any
	var changed []*object
	kept := map[string]bool{}
	for _, doc := range wanted {
		kept[key(doc)] = true
		o, there := byKey[key(doc)]
		if !there {
			fresh = append(fresh, doc)
			continue
		}
		if err := t.checkMember(p, lb, doc); err != nil {
			return nil, err
		}
		doc["provisioning_status"], doc["project_id"] = pendingUpdate, pool.project
		t.lbSet(o, doc)
		changed = append(changed, o)
	}
	var gone []*object
	for _, o := range had {
		if !kept[key(o.doc)] && !additive {
			gone = append(gone, o)
		}
	}
	if more := len(fresh) - len(gone); more > 0 && !t.c.room(pool.project, "member", more) {
		return nil, quotaMet("Member")
	}
	for _, doc := range fresh {
		o, err := t.newMember(p, lb, pool, doc)
		if err != nil {
			return nil, err
		}
		changed = append(changed, o)
	}
	for _, o := range gone {
		t.setStatus(o, pendingDelete)
	}
	return append(changed, gone...), nil
}

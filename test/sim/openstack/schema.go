// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// What may be done with an attribute.
const (
	post      = 1 << iota // may be given in a create
	put                   // may be given in an update
	required              // must be given in a create
	adminPost             // given in a create by an administrator only
	adminPut              // given in an update by an administrator only
	secret                // shown to administrators only
	none                  // no default: absent from the document until it is set
	noFilter              // a list can not be filtered by it
	rw        = post | put
)

// field is one attribute of a kind.
type field struct {
	name  string
	flags int
	conv  convert
	def   any
}

// quotaName is the name of the kind's quota.
func (k *kind) quotaName() string {
	if k.quota != "" {
		return k.quota
	}
	return k.name
}

// kind is a collection of Neutron or Octavia and what is particular to it.
type kind struct {
	name    string // "port"
	plural  string // "ports": the key of a list
	path    string // "ports" or "security-groups": the segment of the URL
	missing func(id string) *apiError
	fields  map[string]field
	index   []string // attributes by which lists are fast
	quota   string   // the name of its quota, where that is another
	create  func(t *tx, in map[string]any) (*object, error)
	update  func(t *tx, o *object, in map[string]any) error
	remove  func(t *tx, o *object) error
	settle  func(t *tx, o *object)                        // what becomes of one after a create or an update was answered
	render  func(c *Cloud, o *object, doc map[string]any) // adds what is computed
}

func fieldsOf(own ...field) map[string]field {
	text := asString(255)
	common := []field{
		{"id", noneOf, nil, nil},
		{"project_id", post, text, nil},
		{"tenant_id", post, text, nil},
		{"name", rw, text, ""},
		{"description", rw, orEmpty(text), ""},
		{"tags", noneOf, nil, nil},
		{"tags-any", noneOf, nil, nil},
		{"not-tags", noneOf, nil, nil},
		{"not-tags-any", noneOf, nil, nil},
		{"created_at", noneOf, nil, nil},
		{"updated_at", noneOf, nil, nil},
		{"changed_since", noneOf, nil, nil},
		{"revision_number", noneOf, nil, nil},
		{"standard_attr_id", noneOf, nil, nil},
	}
	out := make(map[string]field, len(common)+len(own))
	for _, f := range append(common, own...) {
		out[f.name] = f
	}
	return out
}

// noneOf is the flag of an attribute that only the cloud sets.
const noneOf = none

func orEmpty(c convert) convert {
	return func(v any) (any, error) {
		if v == nil {
			return "", nil
		}
		return c(v)
	}
}

// kinds returns the collections of Neutron that are simulated, by the segment of the URL.
func kinds() map[string]*kind {
	all := []*kind{
		networkKind(), subnetKind(), subnetPoolKind(), routerKind(), portKind(), floatingIPKind(),
		securityGroupKind(), securityGroupRuleKind(),
	}
	out := make(map[string]*kind, len(all))
	for _, k := range all {
		out[k.path] = k
	}
	return out
}

// unknownKeys returns those of in that are no attributes, in order.
func (k *kind) unknownKeys(in map[string]any) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if _, ok := k.fields[name]; !ok || strings.Contains(name, "tags-") || name == "changed_since" {
			out = append(out, name)
		}
	}
	return out
}

// value converts a given value. The error is the whole answer.
func (f field) value(v any) (any, error) {
	x, err := f.conv(v)
	if own := new(apiError); errors.As(err, &own) {
		return nil, own
	}
	if err != nil {
		return nil, badRequest("Invalid input for %s. Reason: %v", f.name, err)
	}
	return x, nil
}

// forCreate checks a create's attributes and completes them with the defaults.
func (k *kind) forCreate(who scope, in map[string]any, taggable bool) (map[string]any, error) {
	if bad := k.unknownKeys(in); bad != nil {
		return nil, badRequest("Unrecognized attribute(s) '%s'", strings.Join(bad, ", "))
	}
	if err := fillProject(who, in); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(k.fields))
	var denied []string
	for _, name := range slices.Sorted(maps.Keys(k.fields)) {
		f := k.fields[name]
		v, given := in[name]
		switch {
		case given && name == "tags" && taggable:
			tags, err := asTags(v)
			if err != nil {
				return nil, badRequest("Invalid input for tags. Reason: %v", err)
			}
			out[name] = tags
			continue
		case given && f.flags&post == 0:
			return nil, badRequest("Attribute '%s' not allowed in POST", name)
		case !given && f.flags&required != 0:
			return nil, badRequest("Failed to parse request. Required attribute '%s' not specified", name)
		case !given:
			if f.flags&none == 0 {
				out[name] = f.def
			}
			continue
		}
		x, err := f.value(v)
		if err != nil {
			return nil, err
		}
		// The default may be spelled out by anybody.
		if f.flags&adminPost != 0 && !who.admin && (f.flags&none != 0 || !reflect.DeepEqual(x, f.def)) {
			denied = append(denied, name)
		}
		out[name] = x
	}
	if denied != nil {
		return nil, forbidden(policyRule("create_"+k.name, denied))
	}
	return out, nil
}

// forUpdate checks an update's attributes.
func (k *kind) forUpdate(who scope, in map[string]any) (map[string]any, error) {
	if bad := k.unknownKeys(in); bad != nil {
		return nil, badRequest("Unrecognized attribute(s) '%s'", strings.Join(bad, ", "))
	}
	out := make(map[string]any, len(in))
	var denied []string
	for _, name := range slices.Sorted(maps.Keys(in)) {
		f := k.fields[name]
		if f.flags&put == 0 {
			return nil, badRequest("Cannot update read-only attribute %s", name)
		}
		if f.flags&adminPut != 0 && !who.admin {
			denied = append(denied, name)
		}
		x, err := f.value(in[name])
		if err != nil {
			return nil, err
		}
		out[name] = x
	}
	if denied != nil {
		return nil, forbidden(policyRule("update_"+k.name, denied))
	}
	return out, nil
}

// policyRule words the rule that an oslo.policy check failed.
func policyRule(action string, names []string) string {
	rule := "rule:" + action
	for _, n := range names {
		rule = "(" + rule + " and rule:" + action + ":" + n + ")"
	}
	return rule
}

// fillProject puts the request's project where none is named, and refuses another one to a plain member.
func fillProject(who scope, in map[string]any) error {
	given, _ := in["project_id"].(string)
	tenant, _ := in["tenant_id"].(string)
	if given != "" && tenant != "" && given != tenant {
		return badRequest("'project_id' and 'tenant_id' do not match")
	}
	if given == "" {
		given = tenant
	}
	if given == "" {
		given = who.project
	}
	if given != who.project && !who.admin {
		return badRequest(
			"Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin privileges",
		)
	}
	in["project_id"], in["tenant_id"] = given, given
	return nil
}

func asTags(v any) ([]any, error) {
	x, err := listOf(asString(maxTag), true)(v)
	if err != nil {
		return nil, err
	}
	tags, _ := x.([]any)
	slices.SortFunc(tags, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return tags, nil
}

const (
	maxTag = 60
	maxInt = math.MaxInt32
)

// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// defaultRules is the attribute of a security group that Neutron does not have: whether the group has rules that are
// not resources of this cluster, such as those that Neutron gives every new group.
const defaultRules = "default_rules"

// toldForeignRules has a drift name what others have changed of a group's rules, not an attribute that Neutron does not
// have.
func toldForeignRules(attrs map[string]any) map[string]any {
	foreign, known := attrs[defaultRules]
	if !known {
		return attrs
	}
	attrs = maps.Clone(attrs)
	delete(attrs, defaultRules)
	attrs["has rules of others"] = foreign
	return attrs
}

// foreignRules returns the ids of the rules in a group's document that do not carry the identity of its cluster; shown
// says whether the document lists rules at all.
func foreignRules(doc map[string]any, group plan.Identity) (ids []string, shown bool) {
	list, shown := doc["security_group_rules"].([]any)
	for _, element := range list {
		id, description := textOf(plan.Field(element, "id")), textOf(plan.Field(element, "description"))
		rule, managed := plan.Parse(nil, description)
		if !managed || rule.Key().Cluster != group.Key().Cluster {
			ids = append(ids, id)
		}
	}
	return ids, shown
}

// isUsableGroup says whether references may lead to a group: not as long as it has rules that it should not have.
func isUsableGroup(spec drivers.Spec, o *plan.Observed) bool {
	bare, asked := drivers.Attributes(spec)[defaultRules]
	return !asked || bare != false || o.Attrs[defaultRules] == false
}

// updateBareGroup changes a group's own attributes, then deletes its rules that are not this cluster's. It reads the
// group itself: what it has now counts, not what it had when the step was planned.
func (c *Client) updateBareGroup(
	ctx context.Context, k kind, id string, revision int64, attrs map[string]any,
) (plan.Observed, error) {
	attrs = maps.Clone(attrs)
	delete(attrs, defaultRules)
	if len(attrs) > 0 {
		if _, err := c.Update(ctx, k.Kind, id, revision, attrs); err != nil {
			return plan.Observed{}, err
		}
	}
	r := openstack.Call{Op: "reading", Method: http.MethodGet, Collection: k.Collection, Path: k.PathOf(id), What: id}
	answer, err := c.service.Do(ctx, r)
	if err != nil {
		return plan.Observed{}, err
	}
	doc, err := k.Single(answer)
	if err != nil {
		return plan.Observed{}, openstack.NewError(r, err, true)
	}
	foreign, shown := foreignRules(doc, k.Observed(doc).Identity)
	if !shown {
		return plan.Observed{}, openstack.NewError(r, errNoRules, true)
	}
	if err := c.deleteRules(ctx, foreign); err != nil {
		return plan.Observed{}, err
	}
	return c.Get(ctx, k.Kind, id)
}

// deleteRules deletes all rules that can be deleted. The error names the others.
func (c *Client) deleteRules(ctx context.Context, ids []string) error {
	const named = 3
	var (
		failed error
		n      int
	)
	for _, id := range ids {
		err := c.Delete(ctx, drivers.KindSecurityGroupRule, id)
		if err == nil {
			continue
		}
		switch n++; {
		case n == 1:
			failed = err
		case n <= named:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	if n > named {
		failed = fmt.Errorf("%w; and %d more", failed, n-named)
	}
	return failed
}

// errNoRules: without the rules it cannot be known what the group lets through.
var errNoRules = errors.New("the response does not list the group's rules")

// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// claim is a claimed resource as one claimant wants it, in terms that all its claimants share.
type claim struct {
	resource drivers.Resource
	text     string
}

func claimsOf(set drivers.Set) map[string]claim {
	var claims map[string]claim
	for _, r := range set.Resources {
		if r.Claim == "" {
			continue
		}
		if claims == nil {
			claims = map[string]claim{}
		}
		resource := claimed(set, r)
		claims[r.Claim] = claim{resource, claimText(resource)}
	}
	return claims
}

func sameClaims(a, b map[string]claim) bool {
	return maps.EqualFunc(a, b, func(a, b claim) bool { return a.text == b.text })
}

func claimOf(set drivers.Set, name string) string {
	for _, r := range set.Resources {
		if r.Name == name {
			return r.Claim
		}
	}
	return ""
}

// claimed returns a claimed resource with its references put in terms that all its claimants share: claim names and
// lookups.
func claimed(set drivers.Set, r drivers.Resource) drivers.Resource {
	names := map[string]string{}
	for _, other := range set.Resources {
		if other.Claim != "" {
			names[other.Name] = other.Claim
		} else if l, ok := other.Spec.(drivers.Lookup); ok {
			names[other.Name] = LookupName(l)
		}
	}
	shared := func(ref drivers.Ref) drivers.Ref {
		if name, ok := names[ref.Name]; ok && ref.Role == nil {
			ref.Name = name
		}
		return ref
	}
	out := r
	out.Name = r.Claim
	out.Spec = drivers.MapRefs(r.Spec, shared)
	out.After = slices.Clone(r.After)
	for i, ref := range out.After {
		out.After[i] = shared(ref)
	}
	return out
}

// LookupName names a lookup.
func LookupName(l drivers.Lookup) string { return "lookup " + string(l.Of) + " " + l.ID }

// claimText is a claimed resource as text, for comparing what two claimants want.
func claimText(r drivers.Resource) string {
	text, err := json.Marshal(struct {
		Name   string
		Kind   drivers.Kind
		Spec   map[string]any
		Delete drivers.Policy
		After  []drivers.Ref
		Expand int
	}{r.Name, r.Spec.Kind(), drivers.Attributes(r.Spec), cmp.Or(r.OnDelete, drivers.Delete), r.After, max(r.Expand, 1)})
	if err != nil {
		return fmt.Sprintf("%v", r)
	}
	return string(text)
}

// shares is what the claims come to.
type shares struct {
	set drivers.Set
	// fixed are claims on which there is no common will: what exists of them stays as it is. The value says why.
	fixed map[string]string
	// disputed are those of these for which the claimants have to be told.
	disputed map[string]string
}

// shares joins all claims into the Set of the shared owner. Claims that disagree, or that a claimant of the newest
// configuration has yet to confirm, stay as they are.
func (tx *Tx) shares() shares {
	out := shares{fixed: map[string]string{}, disputed: map[string]string{}}
	lookups := map[string]drivers.Lookup{}
	for name, owners := range tx.claims {
		var chosen drivers.Resource
		texts := map[string][]string{}
		var behind []string
		for id := range owners {
			o := tx.objects[id]
			if d := tx.drivers[o.Request.Driver]; d != nil && o.Answered != d.Epoch {
				behind = append(behind, o.Target.String())
			}
			c := o.claims[name]
			chosen = c.resource
			texts[c.text] = append(texts[c.text], o.Target.String()+" (driver "+o.Request.Driver+")")
			for _, r := range o.Set.Resources {
				if l, ok := r.Spec.(drivers.Lookup); ok {
					lookups[LookupName(l)] = l
				}
			}
		}
		switch {
		case len(texts) == 1:
			out.set.Resources = append(out.set.Resources, chosen)
		case len(behind) > 0:
			out.fixed[name] = fmt.Sprintf(
				"the claims of shared resource %q differ while drivers are still answering for %s", name, Some(Sorted(behind)))
		default:
			out.disputed[name] = disagreement(name, texts)
			out.fixed[name] = out.disputed[name]
		}
	}
	tx.leaveOpen(&out)
	for name, l := range lookups {
		out.set.Resources = append(out.set.Resources, drivers.Resource{Name: name, Spec: l})
	}
	slices.SortFunc(out.set.Resources, func(a, b drivers.Resource) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// leaveOpen has stay what is not claimed any more as long as a driver has not decided about it.
func (tx *Tx) leaveOpen(out *shares) {
	for _, name := range slices.Sorted(maps.Keys(tx.undecided)) {
		if len(tx.claims[name]) > 0 {
			continue // those who do claim it count, or nothing changes where they disagree
		}
		out.set.Undecided = append(out.set.Undecided, name)
		if !slices.ContainsFunc(tx.Cache.Owned(plan.Owner{Driver: Shared}), func(r plan.Observed) bool {
			return tx.kinds.StandsFor(r, name)
		}) {
			continue
		}
		who := map[string]bool{}
		for id := range tx.undecided[name] {
			who[tx.objects[id].Request.Driver] = true
		}
		out.fixed[name] = fmt.Sprintf("driver %s has no opinion on shared resource %q now: it stays as it is",
			strings.Join(slices.Sorted(maps.Keys(who)), ", "), name)
	}
}

func disagreement(name string, texts map[string][]string) string {
	var parties []string
	for _, who := range texts {
		slices.Sort(who)
		if len(who) > 3 {
			who = append(who[:3:3], fmt.Sprintf("%d more", len(who)-3))
		}
		parties = append(parties, strings.Join(who, ", "))
	}
	slices.Sort(parties)
	return fmt.Sprintf("the claims of shared resource %q disagree: %s; it stays as it is until their drivers have the "+
		"same options",
		name, strings.Join(parties, " against "))
}

// isFixed says whether a resource stands for one of the claims that stay as they are.
func (tx *Tx) isFixed(o plan.Observed, fixed map[string]string) bool {
	for claim := range fixed {
		if tx.kinds.StandsFor(o, claim) {
			return true
		}
	}
	return false
}

// Decided lists what an owner has, but for what its Set leaves undecided.
func (tx *Tx) Decided(id plan.Owner, set drivers.Set) []plan.Observed {
	observed := tx.Cache.Owned(id)
	if len(set.Undecided) == 0 {
		return observed
	}
	return slices.DeleteFunc(observed, func(r plan.Observed) bool {
		return slices.ContainsFunc(set.Undecided, func(name string) bool { return tx.kinds.StandsFor(r, name) })
	})
}

// TakeShares gives the shared object its Set, and wakes who must be told of a dispute or its end. It returns the
// object, and of what is disputed or undecided why it stays as it is.
func (tx *LoopTx) TakeShares() (*Object, map[string]string) {
	o := tx.SharedObject()
	sh := tx.shares()
	o.Set = sh.set
	for name, owners := range tx.claims {
		if tx.disputed[name] == sh.disputed[name] {
			continue
		}
		for id := range owners {
			tx.WakeOwner(id)
		}
	}
	tx.disputed = sh.disputed
	return o, sh.fixed
}

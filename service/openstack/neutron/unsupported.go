// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
)

// unsupported remembers the attributes that the cloud turned out not to take, so that the refusal is met and said once:
// best-effort ones that the credentials may not set, and a port's tags. No extension's name tells whether a port's
// create takes tags: the OVN driver of Neutron hides that extension where it is on.
type unsupported struct {
	log        *slog.Logger
	bestEffort map[drivers.Kind][]string

	mu    sync.Mutex
	names map[drivers.Kind]map[string]bool
	taken map[drivers.Kind]map[string]bool // best-effort ones that a create has set
}

func newUnsupported(logger *slog.Logger) *unsupported {
	u := &unsupported{
		log: logger, bestEffort: map[drivers.Kind][]string{}, names: map[drivers.Kind]map[string]bool{},
		taken: map[drivers.Kind]map[string]bool{},
	}
	for _, k := range drivers.Kinds() {
		for _, attribute := range drivers.Schema(k) {
			if attribute.BestEffort {
				u.bestEffort[k] = append(u.bestEffort[k], attribute.Name)
			}
		}
	}
	return u
}

// strip returns the document without what is known not to be allowed, and without these attributes.
func (u *unsupported) strip(of drivers.Kind, doc map[string]any, without []string) map[string]any {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.names[of]) == 0 && len(without) == 0 {
		return doc
	}
	doc = maps.Clone(doc)
	for name := range u.names[of] {
		delete(doc, name)
	}
	for _, name := range without {
		delete(doc, name)
	}
	return doc
}

// suspects returns the best-effort attributes in a document that was refused: what to try again without. Neutron's
// refusal is of no help, since it names the rules of all attributes that were set, the allowed ones too.
func (u *unsupported) suspects(of drivers.Kind, doc map[string]any) []string {
	var names []string
	for _, name := range u.bestEffort[of] {
		if _, set := doc[name]; set {
			names = append(names, name)
		}
	}
	return names
}

// unsure says whether it is not known yet of a best-effort attribute in a document whether it may be set.
func (u *unsupported) unsure(of drivers.Kind, doc map[string]any) bool {
	names := u.suspects(of, doc)
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return !u.names[of][name] && !u.taken[of][name] })
}

// worked learns that a create with these attributes was taken.
func (u *unsupported) worked(of drivers.Kind, doc map[string]any) {
	names := u.suspects(of, doc)
	if len(names) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.taken[of] == nil {
		u.taken[of] = map[string]bool{}
	}
	for _, name := range names {
		u.taken[of][name] = true
	}
}

// remember learns that a request worked, or met another error, once it went without these attributes.
func (u *unsupported) remember(of drivers.Kind, without []string, refusal error) {
	u.mu.Lock()
	if u.names[of] == nil {
		u.names[of] = map[string]bool{}
	}
	var news []string
	for _, name := range without {
		if !u.names[of][name] {
			u.names[of][name] = true
			news = append(news, name)
		}
	}
	u.mu.Unlock()
	if len(news) > 0 {
		u.log.Warn("working without attributes that the cloud does not take from these credentials",
			"kind", string(of), "attributes", news, "error", refusal.Error())
	}
}

func (u *unsupported) of(k drivers.Kind) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.names[k]))
}

// trial is one request that is tried again without the attributes that its refusal may be about.
type trial struct {
	unsupported *unsupported
	kind        drivers.Kind
	without     []string // what the next attempt leaves out
	latest      []string // what the attempt under way is the first to leave out
	refusal     error    // why
}

// again takes the result of an attempt with this document and says whether to try again, with without left out. What
// was left out is remembered if that helped: if the attempt worked, or met another error.
func (t *trial) again(doc map[string]any, err error) bool {
	if t.refusal != nil && objection(err) != objection(t.refusal) {
		t.unsupported.remember(t.kind, t.latest, t.refusal)
		t.refusal = nil
	}
	switch objection(err) {
	case objectsToTags:
		t.latest = nil
		if _, set := doc["tags"]; set {
			t.latest = []string{"tags"}
		}
	case objectsToPolicy:
		t.latest = t.unsupported.suspects(t.kind, doc)
	default:
		return false
	}
	t.without, t.refusal = append(t.without, t.latest...), err
	return len(t.latest) > 0
}

// What a refusal objects to that might be left out.
const (
	objectsToPolicy = "policy"
	objectsToTags   = "tags"
)

// objection says what a refusal objects to, if that might be left out.
func objection(err error) string {
	var e *openstack.Error
	switch {
	case !errors.As(err, &e):
		return ""
	case e.Class == openstack.ClassForbidden:
		return objectsToPolicy
	case e.Status == http.StatusBadRequest && strings.Contains(e.Message, "'tags'"):
		return objectsToTags // "Unrecognized attribute(s) 'tags'"
	}
	return ""
}

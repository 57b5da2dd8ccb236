package openstack

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/kuryr/raven/drivers"
)

// dropped remembers the attributes that the cloud turned out not to take, so that the refusal is met and said once: best-effort
// ones that the credentials may not set, and a port's tags. No extension's name tells whether a port's create takes tags: the
// OVN driver of Neutron hides that extension where it is on.
type dropped struct {
	log        *slog.Logger
	bestEffort map[drivers.Kind][]string

	mu    sync.Mutex
	names map[drivers.Kind]map[string]bool
	taken map[drivers.Kind]map[string]bool // best-effort ones that a create has set
}

func newDropped(logger *slog.Logger) *dropped {
	d := &dropped{log: logger, bestEffort: map[drivers.Kind][]string{}, names: map[drivers.Kind]map[string]bool{}, taken: map[drivers.Kind]map[string]bool{}}
	for _, k := range drivers.Kinds() {
		for _, attribute := range drivers.Schema(k) {
			if attribute.BestEffort {
				d.bestEffort[k] = append(d.bestEffort[k], attribute.Name)
			}
		}
	}
	return d
}

// strip returns the document without what is known not to be allowed, and without these attributes.
func (d *dropped) strip(of drivers.Kind, doc map[string]any, without []string) map[string]any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.names[of]) == 0 && len(without) == 0 {
		return doc
	}
	doc = maps.Clone(doc)
	for name := range d.names[of] {
		delete(doc, name)
	}
	for _, name := range without {
		delete(doc, name)
	}
	return doc
}

// suspects returns the best-effort attributes in a document that was refused: what to try again without. Neutron's refusal is
// of no help, since it names the rules of all attributes that were set, the allowed ones too.
func (d *dropped) suspects(of drivers.Kind, doc map[string]any) []string {
	var names []string
	for _, name := range d.bestEffort[of] {
		if _, set := doc[name]; set {
			names = append(names, name)
		}
	}
	return names
}

// unsure says whether it is not known yet of a best-effort attribute in a document whether it may be set.
func (d *dropped) unsure(of drivers.Kind, doc map[string]any) bool {
	names := d.suspects(of, doc)
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return !d.names[of][name] && !d.taken[of][name] })
}

// worked learns that a create with these attributes was taken.
func (d *dropped) worked(of drivers.Kind, doc map[string]any) {
	names := d.suspects(of, doc)
	if len(names) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken[of] == nil {
		d.taken[of] = map[string]bool{}
	}
	for _, name := range names {
		d.taken[of][name] = true
	}
}

// remember learns that a request worked, or met another error, once it went without these attributes.
func (d *dropped) remember(of drivers.Kind, without []string, refusal error) {
	d.mu.Lock()
	if d.names[of] == nil {
		d.names[of] = map[string]bool{}
	}
	var news []string
	for _, name := range without {
		if !d.names[of][name] {
			d.names[of][name] = true
			news = append(news, name)
		}
	}
	d.mu.Unlock()
	if len(news) > 0 {
		d.log.Warn("working without attributes that the cloud does not take from these credentials",
			"kind", string(of), "attributes", news, "error", refusal.Error())
	}
}

func (d *dropped) of(k drivers.Kind) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names[k]))
}

// trial is one request that is tried again without the attributes that its refusal may be about.
type trial struct {
	dropped *dropped
	kind    drivers.Kind
	without []string // what the next attempt leaves out
	latest  []string // what the attempt under way is the first to leave out
	refusal error    // why
}

// again takes the result of an attempt with this document and says whether to try again, with without left out. What was left
// out is remembered if that helped: if the attempt worked, or met another error.
func (t *trial) again(doc map[string]any, err error) bool {
	if t.refusal != nil && objection(err) != objection(t.refusal) {
		t.dropped.remember(t.kind, t.latest, t.refusal)
		t.refusal = nil
	}
	switch objection(err) {
	case objectsToTags:
		t.latest = nil
		if _, set := doc["tags"]; set {
			t.latest = []string{"tags"}
		}
	case objectsToPolicy:
		t.latest = t.dropped.suspects(t.kind, doc)
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
	var e *Error
	switch {
	case !errors.As(err, &e):
		return ""
	case e.class == ClassForbidden:
		return objectsToPolicy
	case e.Status == http.StatusBadRequest && strings.Contains(e.Message, "'tags'"):
		return objectsToTags // "Unrecognized attribute(s) 'tags'"
	}
	return ""
}

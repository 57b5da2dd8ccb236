package reconcile

import (
	"context"
	"fmt"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
)

// What an operator named, a lookup, is read before it is referred to. One that is not known is a reference that does not resolve:
//
//	nothing has that id or name, or several have   what refers to it waits until it is there, looked for slowly
//	it cannot be read now                          what refers to it waits, tried again ever later
//	either                                         the reason is told; all else goes on; what it may stand for is not deleted

// lookupError says that something which was named is not known.
type lookupError struct {
	of      drivers.Lookup
	missing bool // it is not there, as far as the credentials see
	err     error
}

func (l lookupError) Error() string {
	return fmt.Sprintf("looking up the configured %s %q: %v", l.of.Of, l.of.ID, l.err)
}
func (l lookupError) Unwrap() error { return l.err }

// keptError says that deletions wait for lookups.
type keptError int

func (k keptError) Error() string {
	return fmt.Sprintf("%d deletions wait: what was named in place of it is not known", int(k))
}

// lookup reads what a Set names and is not known yet, and returns why some of it stays unknown. Many ask for the same one at the
// same time.
func (e *Engine) lookup(ctx context.Context, set drivers.Set) []error {
	if e.StandingBy() {
		return nil // the leader reads it
	}
	var failed []error
	for _, r := range set.Resources {
		l, ok := r.Spec.(drivers.Lookup)
		if !ok {
			continue
		}
		known := false
		e.store.do(func() { _, known = e.store.lookups[l] })
		if known {
			continue
		}
		if err := e.once(lookupName(l), func() error { return e.readLookup(ctx, l) }); err != nil {
			failed = append(failed, lookupError{l, notThere(err), err})
		}
	}
	return failed
}

func (e *Engine) readLookup(ctx context.Context, l drivers.Lookup) error {
	found, err := e.cloud.Lookup(ctx, l.Of, l.ID)
	if err == nil {
		found.Attrs = keep(l.Of, found.Attrs)
	}
	var woken []item
	e.store.do(func() {
		if err == nil {
			e.store.lookups[l] = found
			woken = e.store.lookupChanged(l)
		}
	})
	e.wakeAll(woken)
	return err
}

// notThere tells a name that leads to nothing, or to several, from one that cannot be read now.
func notThere(err error) bool {
	class := openstack.Classify(err)
	return class == openstack.ClassNotFound || class == openstack.ClassTerminal
}

// unsure lists the kinds of what an owner names and is not known: it may stand for something of that kind which is there.
func (s *store) unsure(w *want) map[drivers.Kind]bool {
	var kinds map[drivers.Kind]bool
	for _, l := range w.lookups {
		if _, known := s.lookups[l]; known {
			continue
		}
		if kinds == nil {
			kinds = map[drivers.Kind]bool{}
		}
		kinds[l.Of] = true
	}
	return kinds
}

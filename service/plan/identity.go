// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// Shared is the driver in the Owner of claimed resources.
const Shared = "shared"

// Owner is the owner of a resource in the cloud: a driver, and the UID of its source object. A claimed resource has the
// driver Shared and no UID.
type Owner struct{ Driver, UID string }

// Identity is what is written with every create: enough to know a resource again with no other memory.
type Identity struct {
	Cluster string // the cluster's id
	Owner   Owner
	Name    string // the logical name; see Kinds.LogicalName
	Policy  drivers.Policy
	// Source is the resource that the owner's object is one of, with its API group, version and API group, as in
	// "services" or "widgets.v1.example.org". It proves nothing and is not in Key: it says where to check whether the
	// object is still there when its driver is not enabled any more. It stands in descriptions only, where there is
	// room. Empty: it is not known, or there is no one object.
	Source string
}

// Key is an Identity in comparable form, without its policy and with long values shortened, so that a desired identity
// and one read back from the cloud are equal.
type Key struct{ Cluster, Driver, UID, Name string }

// The tokens, and how long the values behind them may be for a tag to keep within Neutron's 60 characters.
const (
	clusterToken = "raven:cluster="
	ownerToken   = "raven:owner="
	nameToken    = "raven:name="
	policyToken  = "raven:policy="
	sourceToken  = "raven:source="

	maxTag     = 60
	maxCluster = maxTag - len(clusterToken)
	maxName    = maxTag - len(nameToken)
	maxUID     = 36
	maxText    = 255 // characters of a name or a description
)

// ExpansionName returns the Name of the n-th subnet of an expandable one; the first is the base itself.
func ExpansionName(base string, n int) string {
	if n < 2 {
		return base
	}
	return base + "." + strconv.Itoa(n)
}

// ExpansionOf is the reverse of ExpansionName, also for names that were shortened: 1 for the base itself, n for its
// n-th subnet up to MaxExpand, 0 for any other name.
func ExpansionOf(name, base string) int {
	name = drivers.Shorten(name, maxName, 12, "")
	if name == drivers.Shorten(base, maxName, 12, "") {
		return 1
	}
	if digits, ok := strings.CutPrefix(name, base+"."); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= 2 && n <= MaxExpand && strconv.Itoa(n) == digits {
			return n
		}
		return 0
	}
	if len(base)+2 <= maxName && !strings.Contains(name, "~") {
		return 0
	}
	for n := 2; n <= MaxExpand; n++ {
		if name == drivers.Shorten(ExpansionName(base, n), maxName, 12, "") {
			return n
		}
	}
	return 0
}

// MaxExpand bounds how many subnets one expandable subnet can become.
const MaxExpand = 256

// ShortDriver returns a driver's name as it stands in a Key, and in the Owner that Parse returns.
func ShortDriver(driver string) string { return drivers.ShortName(driver) }

// Key returns the identity's comparable form.
func (i Identity) Key() Key {
	return Key{
		Cluster: drivers.Shorten(i.Cluster, maxCluster, 12, ""),
		Driver:  ShortDriver(i.Owner.Driver),
		UID:     drivers.Shorten(i.Owner.UID, maxUID, 12, ""),
		Name:    drivers.Shorten(i.Name, maxName, 12, ""),
	}
}

// Tags returns the identity as four tags of at most 60 characters, with neither comma nor slash nor blank in them. A
// dot is written as '@': a tag is the last part of a URL, where a server may take ".2" for the extension of a file's
// name and cut it off.
func (i Identity) Tags() []string {
	k := i.Key()
	owner := k.Driver
	if owner != Shared || k.UID != "" {
		owner += ":" + k.UID
	}
	return []string{
		clusterToken + written(k.Cluster), ownerToken + written(owner), nameToken + written(k.Name),
		policyToken + string(effective(i.Policy)),
	}
}

// markToken begins the tag that names an object for people: it proves nothing.
const markToken = "raven:service="

// Mark returns the tag that names a Service, for people: floating IPs have no name.
func Mark(namespace, name string) string {
	const most = 60
	return markToken + written(drivers.Shorten(namespace+":"+name, most-len(markToken), 12, ""))
}

// IsMark says whether a tag is one of Mark's.
func IsMark(tag string) bool { return strings.HasPrefix(tag, markToken) }

// Description returns the same four tokens joined by blanks, so that Parse reads both, and the source behind them. It
// has at most 255 characters.
func (i Identity) Description() string {
	text := strings.Join(i.Tags(), " ")
	source := " " + sourceToken + i.Source
	if i.Source != "" && isSource(i.Source) && len(text)+len(source) <= maxText {
		text += source
	}
	return text
}

// isSource says whether a text may be a resource with its group, in the form of Kubernetes' names.
func isSource(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// Describe returns a description that carries the identity and keeps the other words of an earlier description, as far
// as 255 characters go.
func (i Identity) Describe(old string) string {
	var words []string
	for _, word := range strings.Fields(old) {
		if !isToken(word) {
			words = append(words, word)
		}
	}
	own := i.Description()
	if len(words) == 0 {
		return own
	}
	return own + cut(" "+strings.Join(words, " "), maxText-len(own))
}

// String returns the identity in a form that people can read.
func (i Identity) String() string {
	if i.Owner.Driver == Shared && i.Owner.UID == "" {
		return fmt.Sprintf("%q (shared)", i.Name)
	}
	return fmt.Sprintf("%q of %s %s", i.Name, i.Owner.Driver, i.Owner.UID)
}

// Parse reads an identity back from a resource's tags and description. It returns false unless one of the two proves
// it.
//
// The tokens may stand among other tags and words, in any order. One proof must be whole: cluster, owner and name each
// exactly once in it (a token twice with different values proves nothing); halves of two proofs are not put together.
// When tags and description prove different identities the tags count: a description is one text that people copy and
// edit whole, tags are added one by one.
//
// The policy is that of the proof; where the tags name none, or both, it is that of a description which proves the same
// identity; and where nothing names it, it is Retain: what is wrongly kept can still be deleted.
//
// The source is that of the description, if it proves the same identity. The identity's values are as they were
// written, that is, long ones shortened: compare by Key.
func Parse(tags []string, description string) (Identity, bool) {
	var byTags, byText proof
	for _, tag := range tags {
		byTags.read(tag)
	}
	for rest := description; rest != ""; {
		var word string
		word, rest = field(rest)
		byText.read(word)
	}
	id, ok := byTags.identity()
	text, textOK := byText.identity()
	switch {
	case !ok && !textOK:
		return Identity{}, false
	case !ok:
		id = text
	case textOK && text.Key() == id.Key():
		id.Policy, id.Source = cmp.Or(id.Policy, text.Policy), text.Source
	}
	if id.Policy == "" {
		id.Policy = drivers.Retain
	}
	return id, true
}

// proof gathers the tokens of one proof.
type proof struct{ cluster, owner, name, policy, source token }

type token struct {
	value          string
	seen, conflict bool
}

func (t *token) set(value string) {
	t.conflict = t.conflict || t.seen && t.value != value
	t.value, t.seen = value, true
}

func (t *token) proven() bool { return t.seen && !t.conflict && t.value != "" }

func (p *proof) read(word string) {
	for _, t := range [...]struct {
		prefix string
		into   *token
	}{
		{clusterToken, &p.cluster},
		{ownerToken, &p.owner},
		{nameToken, &p.name},
		{policyToken, &p.policy},
		{sourceToken, &p.source},
	} {
		if value, ok := strings.CutPrefix(word, t.prefix); ok {
			t.into.set(strings.ReplaceAll(value, "@", "."))
			return
		}
	}
}

// identity returns what the tokens prove; the policy is empty where they name none or contradict each other.
func (p *proof) identity() (Identity, bool) {
	if !p.cluster.proven() || !p.owner.proven() || !p.name.proven() {
		return Identity{}, false
	}
	driver, uid, colon := strings.Cut(p.owner.value, ":")
	if driver == "" || !colon && driver != Shared {
		return Identity{}, false
	}
	id := Identity{Cluster: p.cluster.value, Owner: Owner{Driver: driver, UID: uid}, Name: p.name.value}
	if id.Key() != (Key{id.Cluster, driver, uid, id.Name}) {
		return Identity{}, false // not as we write it
	}
	switch policy := drivers.Policy(p.policy.value); {
	case p.policy.conflict:
	case policy == drivers.Delete, policy == drivers.Retain:
		id.Policy = policy
	}
	if p.source.proven() && isSource(p.source.value) {
		id.Source = p.source.value
	}
	return id, true
}

func isToken(word string) bool {
	for _, prefix := range [...]string{clusterToken, ownerToken, nameToken, policyToken, sourceToken} {
		if strings.HasPrefix(word, prefix) {
			return true
		}
	}
	return false
}

// field splits off the first word of a text.
func field(s string) (word, rest string) {
	s = strings.TrimLeft(s, " \t\r\n")
	if i := strings.IndexAny(s, " \t\r\n"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

func written(value string) string { return strings.ReplaceAll(value, ".", "@") }

// cut returns the first characters of a text.
func cut(s string, characters int) string {
	if len(s) <= characters {
		return s
	}
	for i := range s {
		if characters == 0 {
			return s[:i]
		}
		characters--
	}
	return s
}

func effective(p drivers.Policy) drivers.Policy {
	if p == drivers.Retain {
		return drivers.Retain
	}
	return drivers.Delete
}

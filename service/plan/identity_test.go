// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
)

const (
	testCluster = "4cd1e8d6-5f0b-4d6c-9d9e-7b8d0a1c2e3f"
	testUID     = "0b6c7c1a-3a0f-4a53-8f4e-2d6a1c9b7e55"
)

func port() Identity {
	return Identity{Cluster: testCluster, Owner: Owner{"pod", testUID}, Name: "port", Policy: drivers.Delete}
}

func TestTags(t *testing.T) {
	long := strings.Repeat("network-of-", 10)
	for _, tc := range []struct {
		name, reason string
		id           Identity
		want         []string
	}{
		{"plain", "a person reads them", port(), []string{
			"raven:cluster=" + testCluster, "raven:owner=pod:" + testUID, "raven:name=port", "raven:policy=delete",
		}},
		{
			"shared", "a claimed resource names no driver",
			Identity{Cluster: "c", Owner: Owner{Driver: Shared}, Name: "router", Policy: drivers.Retain},
			[]string{
				"raven:cluster=c", "raven:owner=shared", "raven:name=router", "raven:policy=retain",
			},
		},
		{
			"dots", "a server may take what follows a dot in a URL for a file's extension",
			Identity{Cluster: "c", Owner: Owner{"pod", "u"}, Name: "rif.a.2"},
			[]string{"raven:cluster=c", "raven:owner=pod:u", "raven:name=rif@a@2", "raven:policy=delete"},
		},
		{
			"long", "a UID stays whole beside a long driver name",
			Identity{Cluster: "c", Owner: Owner{"a-driver-of-mine", testUID}, Name: long},
			[]string{
				"raven:cluster=c", "raven:owner=a-dr~a7b292:" + testUID,
				"raven:name=network-of-network-of-network-of-net~8f04d2a551fa",
				"raven:policy=delete",
			},
		},
		{
			"odd", "commas, slashes and blanks separate tags, URLs and words",
			Identity{Cluster: "c", Owner: Owner{"pod", "u"}, Name: "a b/c,d"},
			[]string{
				"raven:cluster=c", "raven:owner=pod:u", "raven:name=a-b-c-d~809ba8803ee9", "raven:policy=delete",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.id.Tags()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, tag := range got {
				if len(tag) > maxTag {
					t.Errorf("%q has %d characters", tag, len(tag))
				}
			}
			for _, description := range []string{tc.id.Description(), ""} {
				back, ok := Parse(got, description)
				if !ok || back.Key() != tc.id.Key() || back.Policy != effective(tc.id.Policy) {
					t.Errorf("read back: %v, %v", back, ok)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	id := port()
	tags := id.Tags()
	other := id
	other.Name = "other"
	retain := id
	retain.Policy = drivers.Retain
	sourced := id
	sourced.Source = "widgets.example.org"
	elsewhere := other
	elsewhere.Source = "widgets.example.org"
	for _, tc := range []struct {
		name, reason string
		tags         []string
		description  string
		want         Identity
		ok           bool
	}{
		{"nothing", "nothing proves nothing", nil, "", Identity{}, false},
		{"foreign", "a foreign resource is never ours", []string{"web", "raven"}, "raven made this", Identity{}, false},
		{"tags", "either proof suffices", tags, "", id, true},
		{"description", "either proof suffices", nil, id.Description(), id, true},
		{
			"among others", "operators tag and write too", append([]string{"a"}, append(tags, "raven:extra=1")...), "", id, true,
		},
		{"words around", "operators tag and write too", nil, "see ticket 7:\n " + id.Description() + "\tthanks", id, true},
		{"no cluster", "half a proof is none", tags[1:], "", Identity{}, false},
		{"no owner", "half a proof is none", []string{tags[0], tags[2], tags[3]}, "", Identity{}, false},
		{"no name", "half a proof is none", []string{tags[0], tags[1], tags[3]}, "", Identity{}, false},
		{
			"two halves", "halves of two proofs may be of two resources", tags[:1], strings.Join(tags[1:], " "),
			Identity{},
			false,
		},
		{"half and whole", "a whole proof stands by itself", tags[:1], id.Description(), id, true},
		{"both differ", "tags are not copied by accident as descriptions are", tags, other.Description(), id, true},
		{"name twice", "a contradiction proves nothing", append(tags[:4:4], "raven:name=other"), "", Identity{}, false},
		{
			"name twice in tags", "then the description decides", append(tags[:4:4], "raven:name=other"), id.Description(), id,
			true,
		},
		{"same name twice", "a repetition is none", append(tags[:4:4], tags[2]), "", id, true},
		{"no policy", "what is wrongly kept can still be deleted", tags[:3], "", retain, true},
		{"policy of the description", "it is the same resource's", tags[:3], id.Description(), id, true},
		{"policy of another", "another resource's policy says nothing", tags[:3], other.Description(), retain, true},
		{
			"both policies", "a change of policy is under way: the description is written first",
			append(tags[:4:4], "raven:policy=retain"), id.Description(), id, true,
		},
		{
			"both policies alone", "what is wrongly kept can still be deleted", append(tags[:4:4], "raven:policy=retain"), "",
			retain, true,
		},
		{
			"no such policy", "what is wrongly kept can still be deleted", append(tags[:3:3], "raven:policy=x"), "", retain,
			true,
		},
		{"owner without uid", "only shared has none", []string{tags[0], "raven:owner=pod", tags[2]}, "", Identity{}, false},
		{"empty name", "an empty value names nothing", []string{tags[0], tags[1], "raven:name="}, "", Identity{}, false},
		{"source", "it has no room in a tag", tags, sourced.Description(), sourced, true},
		{"source of another", "another resource's source says nothing", tags, elsewhere.Description(), id, true},
		{"two sources", "a contradiction says nothing", nil, sourced.Description() + " raven:source=pods", id, true},
		{"no resource", "it is no name of a resource", nil, id.Description() + " raven:source=../secrets", id, true},
		{"source alone", "it proves nothing", nil, "raven:source=pods", Identity{}, false},
		{
			"cluster in capitals", "clusters compare exactly",
			[]string{strings.ToUpper(tags[0]), tags[1], tags[2]},
			"",
			Identity{},
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := Parse(tc.tags, tc.description)
			if diff := cmp.Diff(tc.want, got); ok != tc.ok || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, ok, diff)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	id := port()
	id.Policy = drivers.Retain
	got := id.Describe("ticket 7 " + port().Description() + " ask Ann")
	if want := id.Description() + " ticket 7 ask Ann"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	old := id
	old.Source = "pods"
	id.Source = "services"
	if got, want := id.Describe(old.Description()+" ask Ann"), id.Description()+" ask Ann"; got != want ||
		!strings.Contains(got, "raven:source=services") {
		t.Errorf("another source: got %q, want %q", got, want)
	}
	id.Source = strings.Repeat("x", 250)
	if got := id.Description(); strings.Contains(got, "source") {
		t.Errorf("a source for which there is no room: %q", got)
	}
	if got := id.Describe(strings.Repeat("ü", 300)); utf8.RuneCountInString(got) > 255 || !utf8.ValidString(got) {
		t.Errorf("too long, or cut inside a character: %q", got)
	}
}

func TestExpansionOf(t *testing.T) {
	long := strings.Repeat("subnet-", 9)
	for _, tc := range []struct {
		name, base string
		want       int
	}{
		{"subnet", "subnet", 1},
		{"subnet.2", "subnet", 2},
		{"subnet.10", "subnet", 10},
		{"subnet.02", "subnet", 0},
		{"subnet.1", "subnet", 0},
		{"subnet.x", "subnet", 0},
		{"subnets", "subnet", 0},
		{"subnet.999", "subnet", 0},
		{"other.2", "subnet", 0},
		{Identity{Name: ExpansionName(long, 7)}.Key().Name, long, 7},
		{Identity{Name: long}.Key().Name, long, 1},
		{"x~123456789abc", long, 0},
	} {
		if got := ExpansionOf(tc.name, tc.base); got != tc.want {
			t.Errorf("ExpansionOf(%q, %q) = %d, want %d", tc.name, tc.base, got, tc.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	id := port()
	f.Add(strings.Join(id.Tags(), ","), id.Description())
	f.Add("raven:owner=:,raven:name=@,raven:cluster=~", "raven:owner=shared raven:owner=shared:x")
	f.Fuzz(func(t *testing.T, tags, description string) {
		got, ok := Parse(strings.Split(tags, ","), description)
		if !ok {
			return
		}
		back, ok := Parse(got.Tags(), "")
		back.Source = got.Source // stands in descriptions only
		if !ok || back != got {
			t.Errorf("%+v became %+v", got, back)
		}
		back, ok = Parse(nil, got.Describe(description))
		if !strings.Contains(got.Description(), sourceToken) {
			back.Source = got.Source // there is no room
		}
		if !ok || back != got {
			t.Errorf("%+v became %+v by description", got, back)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(testCluster, "pod", testUID, "port")
	f.Add("", "shared", "", "a~b.2@x")
	f.Fuzz(func(t *testing.T, cluster, driver, uid, name string) {
		id := Identity{Cluster: cluster, Owner: Owner{driver, uid}, Name: name, Policy: drivers.Delete, Source: name}
		for _, tag := range id.Tags() {
			if len(tag) > maxTag || strings.ContainsAny(tag, ",/ \t\n") {
				t.Errorf("tag %q", tag)
			}
		}
		if d := id.Description(); len(d) > maxText {
			t.Errorf("description %q", d)
		}
		if cluster == "" || driver == "" || name == "" {
			return
		}
		back, ok := Parse(id.Tags(), "")
		if !ok || back.Key() != id.Key() {
			t.Errorf("%+v became %+v", id, back)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

// Package drivers is the language between Raven's core and its translation drivers: what a driver watches, what it
// asks for, and what it wants the cloud to hold. It must never do I/O: a driver is a pure function, and this package
// is all that it needs.
package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Driver translates Kubernetes objects into the network resources that should exist for them.
//
// A Driver MUST be safe for concurrent calls of Translate once Configure has returned. It MUST NOT keep state between
// calls, read a clock, the environment or the network: the core may call it any number of times, in any order, and
// compares results.
type Driver interface {
	// Info describes the driver. It is called before Configure and MUST NOT depend on it.
	Info() Info
	// Configure hands over the values of the options that Info declares, every one of them, defaults filled in. An error
	// is shown to the operator as it is; the driver is then not used. It may be called again on a reload.
	Configure(ctx context.Context, values Values) error
	// Watches says which resources the driver is concerned with, under the configuration it was given.
	Watches() []Watch
	// Translate maps one existing source object to the Set of resources it should have. It is not called for a deleted
	// object. When it asks needs for something that is not answered yet, what it returns is discarded and it is called
	// again with the answer, at most MaxRounds times in all. An error means "no opinion": what exists for the object
	// stays.
	Translate(ctx context.Context, object Object, needs *Needs) (Set, error)
}

// ErrUnavailable is what Translate returns while a driver's process is dead or starting: no opinion, ask again later.
var ErrUnavailable = errors.New("the driver is not available")

// ErrIsolated is what Translate returns for an object that ended or hung its driver again and again and is kept from
// it: no opinion.
var ErrIsolated = errors.New("the object is isolated")

// MaxRounds is how often the core calls Translate for one version of an object to settle its needs.
const MaxRounds = 3

// Info describes a driver to the core and to the operator.
type Info struct {
	// Name is the driver's name as `[raven] drivers` lists it: lower case letters, digits and dashes, at most 40
	// characters.
	Name string
	// Version is the driver's own version, for people.
	Version string
	// Description is one sentence for `raven driver list`.
	Description string
	// Role names an exclusive role that the driver holds for its source objects, such as "service-proxy"; usually empty.
	// What the driver makes belongs to the role: another driver that takes the role over takes it over as well, and what
	// both call by the same logical name stays as it is.
	Role string
	// Options are the configuration options that the driver reads.
	Options []Option
	// Kinds are the kinds of resources it may produce. A Set with another kind is refused.
	Kinds []Kind
	// Annotations and Labels are the keys that it may write on its source objects. A Set with another key is refused.
	Annotations []string
	Labels      []string
	// Status are the parts of the status that it may write on its source objects: StatusLoadBalancer or none.
	Status []string
	// Capabilities are abilities of the driver beyond the contract's version, by name; usually none. The core ignores
	// what it does not know.
	Capabilities []string
}

// CoreAware is a Driver that wants to know what the core can beyond the contract's version, for example to do without
// a kind of resources that an older core would refuse: see KindCapability.
type CoreAware interface {
	// Core is called before Info, with the core's abilities by name; those that are not known mean nothing. A core that
	// names none can what the first release could.
	Core(capabilities []string)
}

// KindCapability is how a core names its ability to make a kind of resources.
func KindCapability(kind Kind) string { return "kind:" + string(kind) }

// DriverCapability is how a core says that a driver is enabled, for drivers that share their work, such as
// networkpolicy, namespace and pod; or that it was, and has security groups that are still there: what they close stays
// closed. That it is enabled does not say that it runs: one that does not start is named all the same, so that its part
// is left to it until it does. A tool that runs a driver alone may leave it out.
func DriverCapability(name string) string { return "driver:" + ShortName(name) }

// BareGroups is how a core names its ability to make security groups without default rules.
const BareGroups = "security-group:default-rules"

// SoftReferences is how a core names its ability to do without what a soft reference leads to; see Ref.Soft.
const SoftReferences = "soft-references"

// ChassisBackends is how a core names its ability to give clients on each chassis of OVN backends of their own; see
// OVNVIP.Chassis.
const ChassisBackends = "ovn:chassis-backends"

// ReverseSelectors is how a core names its ability to answer needs by what selects an object; see Selecting.
const ReverseSelectors = "reverse-selectors"

// ServiceProxy is the role of drivers that serve Services. They call by the same logical names what outlives a change
// of the driver: see FloatingIPName.
const ServiceProxy = "service-proxy"

// FloatingIPName is the logical name of the floating IP that leads to a Service: for an address that was asked for,
// else for the one that the cloud chooses for that IP version, "4" or "6".
func FloatingIPName(addressOrVersion string) string {
	return "floatingip-" + strings.ReplaceAll(addressOrVersion, ":", "-")
}

// OptionType is the type of an option's value.
type OptionType string

// The types of options, with the Go types that Values holds for them.
const (
	StringOption      OptionType = "string"       // string
	IntegerOption     OptionType = "integer"      // int64
	BooleanOption     OptionType = "boolean"      // bool
	FloatOption       OptionType = "float"        // float64
	ListOption        OptionType = "list"         // []string: a,b,c
	DictOption        OptionType = "dict"         // map[string]string: k:v,k2:v2
	MultiOption       OptionType = "multi"        // []string: one from each line that sets the option
	PortOption        OptionType = "port"         // int64
	DurationOption    OptionType = "duration"     // float64, in seconds; written as 30, 300ms, 5m or 1h30m
	IPOption          OptionType = "ip"           // string
	CIDROption        OptionType = "cidr"         // string: a range of addresses without host bits
	URIOption         OptionType = "uri"          // string: with a scheme and a host
	HostnameOption    OptionType = "hostname"     // string
	HostAddressOption OptionType = "host_address" // string: an address or a host name
)

// Option declares one configuration option. Two drivers may declare the same option if they declare it alike.
type Option struct {
	Group string
	Name  string
	Type  OptionType
	// Default is the text of the default, as an operator would write it in kuryr.conf. HasDefault tells an empty default
	// from none.
	Default    string
	HasDefault bool
	Help       string
	Choices    []string
	Required   bool
	Secret     bool
	// Min and Max bound a number, each item that is one, and a duration in seconds; nil is unbounded.
	Min, Max *float64
	// Item is the type of each item of a list or multi option and of each value of a dict; empty is StringOption. What
	// the option allows is checked on each; the items stay texts.
	Item OptionType
	// Pattern is a regular expression that a text or each item must match somewhere; anchor it with ^ and $. It excludes
	// Choices.
	Pattern string
	// IgnoreCase accepts Choices and Pattern in any case; the value is then the choice as declared.
	IgnoreCase bool
	// MaxLength is the most characters of a text or URI; 0 is unbounded.
	MaxLength int
	// Schemes are those that a URI may have; empty allows all.
	Schemes []string
	// IPVersion is 4 or 6 where an address or range must be of that version; 0 allows both.
	IPVersion int
	// Deprecated lists former names, as {group, name}.
	Deprecated [][2]string
	// DeprecatedForRemoval, with the release Since when and the Reason, warns who sets the option.
	DeprecatedForRemoval              bool
	DeprecatedSince, DeprecatedReason string
	// Env lists further environment variables that set the option, beside OS_<GROUP>__<OPTION>.
	Env []string
	// ChoiceHelp describes choices in kuryr.conf.sample. SampleDefault stands there in place of a default that depends
	// on the machine.
	ChoiceHelp    map[string]string
	SampleDefault string
	// Advanced options come last in kuryr.conf.sample, with a note.
	Advanced bool
}

// Values holds option values by group and name; see OptionType for their Go types. An option without a default that
// is not set is absent.
type Values map[string]map[string]any

// String returns a string, IP, CIDR, URI, hostname or host address option, or "" where it is not set.
func (v Values) String(group, name string) string { s, _ := v[group][name].(string); return s }

// Int returns an integer or port option, or 0 where it is not set.
func (v Values) Int(group, name string) int64 { i, _ := v[group][name].(int64); return i }

// Bool returns a boolean option, or false where it is not set.
func (v Values) Bool(group, name string) bool { b, _ := v[group][name].(bool); return b }

// Float returns a float option, or a duration in seconds, or 0 where it is not set.
func (v Values) Float(group, name string) float64 { f, _ := v[group][name].(float64); return f }

// List returns a list or multi option, or nil where it is not set.
func (v Values) List(group, name string) []string { l, _ := v[group][name].([]string); return l }

// Dict returns a dict option, or nil where it is not set.
func (v Values) Dict(group, name string) map[string]string {
	d, _ := v[group][name].(map[string]string)
	return d
}

// Watch is one resource that a driver is concerned with.
type Watch struct {
	// Name is what needs and objects call this watch; unique within the driver.
	Name string
	// GVR is the resource, core ("", "v1", "pods") or custom.
	GVR schema.GroupVersionResource
	// Kind is the kind of its objects, for example "Pod". It is part of the roles that a driver exports.
	Kind string
	// Namespace limits the watch to one namespace; empty is all.
	Namespace     string
	LabelSelector string
	FieldSelector string
	// Fields are the dotted paths that the driver reads, for example "spec.nodeName" or "metadata.labels". A change
	// outside them never reaches the driver. apiVersion, kind and metadata.{name,namespace,uid,deletionTimestamp} are
	// always there. Empty means the whole object without metadata.managedFields.
	Fields []string
	// Selectors says where the objects hold label selectors of others, so that a need can ask for the objects that select
	// one: see Selecting. Fields must lead to them. A core that does not name ReverseSelectors among its capabilities
	// does not know them.
	Selectors []SelectorPath
	// Source says that the driver translates these objects. Other watches only answer needs.
	Source bool
	// Optional says that a cluster may lack the resource: needs are then answered as absent instead of unknown.
	Optional bool
}

// SelectorPath is where objects hold pairs of label selectors, one of namespaces and one of objects in them, as the
// peers of a NetworkPolicy.
type SelectorPath struct {
	// Path leads to what holds a pair: a dotted path in which [] goes through a list, such as "spec.ingress[].from[]".
	Path string
	// Namespaces and Objects are the fields there that hold the two selectors. Where both are missing nothing is
	// selected. Without the first one, objects in the namespace of the object that holds the pair are selected; without
	// the second one, all in the namespaces.
	Namespaces string
	Objects    string
}

// Object is one version of one Kubernetes object, trimmed to the fields of its watch.
type Object struct {
	// Watch is the name of the watch that it came by.
	Watch string
	// Raw is the object as JSON.
	Raw json.RawMessage
}

// Into decodes the object into a typed one, for example a *corev1.Pod.
func (o Object) Into(into any) error {
	if err := json.Unmarshal(o.Raw, into); err != nil {
		return fmt.Errorf("decoding object of watch %q: %w", o.Watch, err)
	}
	return nil
}

// Meta decodes what every object has: apiVersion, kind and metadata.
func (o Object) Meta() (metav1.PartialObjectMetadata, error) {
	var meta metav1.PartialObjectMetadata
	err := o.Into(&meta)
	return meta, err
}

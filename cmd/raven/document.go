// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/reconcile"
)

// formatVersion is that of the JSON and YAML documents of all commands. It changes when a key gets another meaning or
// goes, not when one is added.
const formatVersion = daemon.FormatVersion

// planDocument is `raven plan -o json`.
type planDocument struct {
	FormatVersion int               `json:"formatVersion"`
	Cluster       string            `json:"cluster"`
	Project       string            `json:"project"`
	Create        int               `json:"create"`
	Change        int               `json:"change"`
	Delete        int               `json:"delete"`
	Write         int               `json:"write"` // objects whose annotations or labels would be written
	Problems      int               `json:"problems"`
	Held          []reconcile.Guard `json:"held,omitempty"`
	Objects       []plannedDocument `json:"objects"`
	Unread        []daemon.Unread   `json:"unread,omitempty"`    // with -f: what no driver translates
	Unchanged     []string          `json:"unchanged,omitempty"` // with -f: what needs nothing
}

// plannedDocument is what would be done for one object.
type plannedDocument struct {
	Driver   string         `json:"driver"`
	Object   string         `json:"object"`
	Steps    []stepDocument `json:"steps,omitempty"`
	Waits    []string       `json:"waits,omitempty"`
	Writes   []string       `json:"writes,omitempty"`
	Held     int            `json:"held,omitempty"`
	Problems []string       `json:"problems,omitempty"`
}

// stepDocument is one change of one resource.
type stepDocument struct {
	Op     string `json:"op"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`           // logical: in the driver's Set
	ID     string `json:"id,omitempty"`   // empty for a create
	Part   string `json:"part,omitempty"` // of the resource; empty: the whole
	Reason string `json:"reason"`
	// Attributes of a create are all, of an update those that change, with what they were in Old. What is known only
	// after another create is an object {"after": the name of that}.
	Attributes map[string]any `json:"attributes,omitempty"`
	Old        map[string]any `json:"old,omitempty"`
	After      []string       `json:"after,omitempty"` // what has to happen first
}

func (p planReport) document() planDocument {
	d := planDocument{
		FormatVersion: p.FormatVersion, Cluster: p.Cluster, Project: p.Project, Create: p.Create, Change: p.Change,
		Delete: p.Delete, Write: p.Write, Problems: p.Problems, Held: p.Held, Objects: []plannedDocument{},
		Unread: p.Unread, Unchanged: p.Unchanged,
	}
	for _, o := range p.Objects {
		of := plannedDocument{
			Driver: o.Driver, Object: o.Object, Waits: o.Waits, Writes: o.Writes, Held: o.Held, Problems: o.Problems,
		}
		for _, s := range o.Steps {
			of.Steps = append(of.Steps, stepOf(s))
		}
		d.Objects = append(d.Objects, of)
	}
	return d
}

func stepOf(s plan.Step) stepDocument {
	d := stepDocument{
		Op: string(s.Op), Kind: string(s.Kind), Name: s.Identity.Name, ID: s.ID, Reason: s.Reason,
		Attributes: plainMap(s.Attrs), Old: plainMap(s.Old),
	}
	if s.Part != nil {
		d.Part = s.Part.String()
	}
	for _, w := range s.Waits {
		d.After = append(d.After, w.Message)
	}
	return d
}

// plain replaces what only the core knows in a value by what a document can hold.
func plain(v any) any {
	switch v := v.(type) {
	case drivers.Ref:
		return map[string]any{"after": v.String()}
	case map[string]any:
		return plainMap(v)
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = plain(item)
		}
		return list
	}
	return v
}

func plainMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(m))
	for key, value := range m {
		out[key] = plain(value)
	}
	return out
}

// translationDocument is `raven translate`.
type translationDocument struct {
	FormatVersion int             `json:"formatVersion"`
	Objects       []translated    `json:"objects"`
	Unread        []daemon.Unread `json:"unread,omitempty"` // what no driver translates
}

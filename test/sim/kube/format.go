// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"mime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// mode is the shape in which objects are shown.
type mode int

const (
	asObject mode = iota
	asTable
	asPartial
)

// format is how one request wants its objects.
type format struct {
	view          *view
	mode          mode
	includeObject string
}

// formatOf picks the first JSON form that an Accept header names; protobuf and CBOR are never spoken.
func formatOf(accept string) mode {
	for clause := range strings.SplitSeq(accept, ",") {
		media, parameters, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil || media != "application/json" && media != "*/*" && media != "application/*" {
			continue
		}
		switch parameters["as"] {
		case "Table":
			return asTable
		case "PartialObjectMetadata", "PartialObjectMetadataList":
			return asPartial
		}
		return asObject
	}
	return asObject
}

// object encodes one object in the format; an object in its stored form is encoded only once, for all.
func (f format) object(it *item) []byte {
	switch f.mode {
	case asTable:
		return encodeJSON(
			f.table([]*item{it}, map[string]any{"resourceVersion": text(it.object, "metadata", "resourceVersion")}, true),
		)
	case asPartial:
		return encodeObject(f.partial(it), it.managed)
	case asObject:
	}
	if f.view.stored() {
		return it.bytes()
	}
	return encodeObject(f.view.show(it.object), it.managed)
}

func (f format) partial(it *item) map[string]any {
	return map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": it.object["metadata"],
	}
}

type column struct {
	name, format string
	priority     int
	value        func(object map[string]any) any
}

// table builds what `kubectl get` prints.
func (f format) table(items []*item, meta map[string]any, withColumns bool) map[string]any {
	columns := f.columns()
	rows := make([]any, 0, len(items))
	for _, it := range items {
		cells := make([]any, 0, len(columns))
		for _, c := range columns {
			cells = append(cells, c.value(it.object))
		}
		row := map[string]any{"cells": cells}
		switch f.includeObject {
		case "None":
		case "Object":
			row["object"] = f.view.show(it.object)
		default:
			row["object"] = f.partial(it)
		}
		rows = append(rows, row)
	}
	table := map[string]any{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "rows": rows}
	definitions := make([]any, 0, len(columns))
	if withColumns {
		for _, c := range columns {
			definitions = append(definitions,
				map[string]any{"name": c.name, "type": "string", "format": c.format, "description": c.name, "priority": c.priority})
		}
	}
	table["columnDefinitions"] = definitions
	return table
}

func (f format) columns() []column {
	cell := func(path ...string) func(map[string]any) any {
		return func(object map[string]any) any {
			if s := text(object, path...); s != "" {
				return s
			}
			return "<none>"
		}
	}
	columns := []column{{"Name", "name", 0, cell("metadata", "name")}}
	switch f.view.kind.Kind {
	case "Pod":
		columns = append(columns, column{"Ready", "", 0, readyContainers}, column{"Status", "", 0, podStatus},
			column{"Restarts", "", 0, func(map[string]any) any { return "0" }})
	case "Namespace":
		columns = append(columns, column{"Status", "", 0, cell("status", "phase")})
	case "Service":
		columns = append(columns, column{"Type", "", 0, cell("spec", "type")},
			column{"Cluster-IP", "", 0, cell("spec", "clusterIP")})
	case "Event":
		columns = append(columns, column{"Type", "", 0, cell("type")}, column{"Reason", "", 0, cell("reason")},
			column{"Message", "", 0, cell("message")})
	}
	columns = append(columns, column{"Age", "", 0, age})
	if f.view.kind.Kind == "Pod" {
		columns = append(columns, column{"IP", "", 1, cell("status", "podIP")},
			column{"Node", "", 1, cell("spec", "nodeName")})
	}
	return columns
}

func age(object map[string]any) any {
	created, err := time.Parse(time.RFC3339, text(object, "metadata", "creationTimestamp"))
	if err != nil {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(created))
}

func podStatus(object map[string]any) any {
	if metadata(object)["deletionTimestamp"] != nil {
		return "Terminating"
	}
	return text(object, "status", "phase")
}

func readyContainers(object map[string]any) any {
	spec, _ := object["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	ready := 0
	if text(object, "status", "phase") == "Running" {
		ready = len(containers)
	}
	return fmt.Sprintf("%d/%d", ready, len(containers))
}

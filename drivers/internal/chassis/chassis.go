// SPDX-License-Identifier: Apache-2.0

// Package chassis reads from a Node under which name OVN knows it. It must never guess: a name that cannot be one is
// an error.
package chassis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
)

// Field is the path of the annotation, for Watch.Fields.
const Field = "metadata.annotations['" + contract.ChassisHostname + "']"

// IDField is the path of the annotation with the chassis' name in OVN's southbound database.
const IDField = "metadata.annotations['" + contract.ChassisID + "']"

// TranslatedField is the path of the annotation with the addresses of translated connections.
const TranslatedField = "metadata.annotations['" + contract.TranslatedAddresses + "']"

// longest is the most characters that Neutron takes as binding:host_id.
const longest = 255

// HostID returns the binding:host_id of ports on a node of that name: the chassis' name where the Node tells it, else
// the node's name. The Node may be absent: then objects is empty.
func HostID(name string, objects []drivers.Object) (string, error) {
	for _, object := range objects {
		meta, err := object.Meta()
		if err != nil {
			return "", err
		}
		chassis := meta.Annotations[contract.ChassisHostname]
		if chassis == "" {
			continue
		}
		if utf8.RuneCountInString(chassis) > longest || strings.ContainsFunc(chassis, notInAName) {
			return "", fmt.Errorf("annotation %s of Node %s is not the name of a chassis: %.64q has more than %d characters, "+
				"or blanks or control characters among them; it must be external_ids:hostname of the node's Open vSwitch",
				contract.ChassisHostname, name, chassis, longest)
		}
		return chassis, nil
	}
	return name, nil
}

func notInAName(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError
}

// IDs returns the names of chassis in OVN's southbound database by the name of the Node, and the Nodes that do not say
// one, or say what cannot be one or what another one says as well, sorted.
func IDs(nodes []drivers.Object) (ids map[string]string, without []string, err error) {
	ids = map[string]string{}
	for _, node := range nodes {
		meta, err := node.Meta()
		if err != nil {
			return nil, nil, err
		}
		id := meta.Annotations[contract.ChassisID]
		if id == "" || len(id) > longest || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
			without = append(without, meta.Name)
			continue
		}
		ids[meta.Name] = id
	}
	nodesOf := map[string][]string{}
	for node, id := range ids {
		nodesOf[id] = append(nodesOf[id], node)
	}
	for _, several := range nodesOf {
		if len(several) > 1 {
			without = append(without, several...)
			maps.DeleteFunc(ids, func(node, _ string) bool { return slices.Contains(several, node) })
		}
	}
	slices.Sort(without)
	return ids, without, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package chassis reads from a Node under which name OVN knows it. It must never guess: a name that cannot be one is
// an error.
package chassis

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
)

// Field is the path of the annotation, for Watch.Fields.
const Field = "metadata.annotations['" + contract.ChassisHostname + "']"

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

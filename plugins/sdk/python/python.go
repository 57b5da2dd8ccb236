// SPDX-License-Identifier: Apache-2.0

// Package python holds the SDK for drivers in Python, as the files that `raven driver new --lang python` writes
// beside a driver. It must never hold anything of one driver.
package python

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/kuryr/raven/plugins/wire"
)

//go:embed raven_driver/*.py
var files embed.FS

// Files returns the SDK: the folder raven_driver, a package of Python.
func Files() fs.FS { return files }

// Contract returns raven_driver/contract.py: the messages of the contract, as Python makes them from their
// description. It needs no generated code, and therefore no certain version of protobuf.
func Contract() ([]byte, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(wire.Contract()))
	if err != nil {
		return nil, fmt.Errorf("encoding the contract: %w", err)
	}
	var out bytes.Buffer
	out.WriteString(contractHead)
	text := base64.StdEncoding.EncodeToString(encoded)
	for len(text) > 0 {
		line := text[:min(len(text), 120)]
		text = strings.TrimPrefix(text, line)
		fmt.Fprintf(&out, "    %q\n", line)
	}
	out.WriteString(contractTail)
	return out.Bytes(), nil
}

const contractHead = `"""The messages of raven/v1/driver.proto. Made from the contract; not to be changed by hand."""

import base64

from google.protobuf import descriptor_pool, message_factory

_DESCRIPTION = (
`

const contractTail = `)


def _load():
    """Makes a class of every message and a number of every enum value, under their own names."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(base64.b64decode(_DESCRIPTION))
    described = pool.FindFileByName("raven/v1/driver.proto")
    found = {}
    for name, message in described.message_types_by_name.items():
        if hasattr(message_factory, "GetMessageClass"):
            found[name] = message_factory.GetMessageClass(message)
        else:
            found[name] = message_factory.MessageFactory(pool).GetPrototype(message)
    for enum in described.enum_types_by_name.values():
        for name, value in enum.values_by_name.items():
            found[name] = value.number
    return found


_FOUND = _load()
globals().update(_FOUND)
__all__ = sorted(_FOUND)
`

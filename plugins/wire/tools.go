// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// NewItem returns the item of one round of an object, without an id, for tools that speak the contract by themselves.
func NewItem(object drivers.Object, answers map[drivers.Need][]drivers.Object, round int) *ravenv1.TranslateItem {
	return &ravenv1.TranslateItem{Round: uint32(round), Object: objectToProto(object), Answers: answersToProto(answers)}
}

// CoreCapabilities are those that a core names, with the drivers that are enabled.
func CoreCapabilities(enabled []string) []string { return coreCapabilities(enabled) }

// NeedFromProto reads one need of a result.
func NeedFromProto(message *ravenv1.Need) drivers.Need { return needFromProto(message) }

// WatchesFromProto reads the watches of an answer to Configure.
func WatchesFromProto(messages []*ravenv1.Watch) []drivers.Watch { return watchesFromProto(messages) }

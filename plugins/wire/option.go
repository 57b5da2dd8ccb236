// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

func optionToProto(option drivers.Option) (*ravenv1.Option, error) {
	kind, err := toEnum(optionTypes(), option.Type, "type")
	if err != nil {
		return nil, err
	}
	item, err := toEnum(itemTypes(), option.Item, "type of items")
	if err != nil {
		return nil, err
	}
	out := &ravenv1.Option{
		Group: option.Group, Name: option.Name, Type: kind, Help: option.Help, Choices: option.Choices,
		Required: option.Required, Secret: option.Secret, Min: option.Min, Max: option.Max, Env: option.Env,
		Item: item, Pattern: option.Pattern, IgnoreCase: option.IgnoreCase, MaxLength: uint32(option.MaxLength),
		Schemes:   option.Schemes,
		IpVersion: uint32(option.IPVersion), ChoiceHelp: option.ChoiceHelp, SampleDefault: option.SampleDefault,
		Advanced:             option.Advanced,
		DeprecatedForRemoval: option.DeprecatedForRemoval, DeprecatedSince: option.DeprecatedSince,
		DeprecatedReason: option.DeprecatedReason,
	}
	if option.HasDefault {
		out.Default = &option.Default
	}
	for _, former := range option.Deprecated {
		out.Deprecated = append(out.Deprecated, &ravenv1.OptionName{Group: former[0], Name: former[1]})
	}
	return out, nil
}

func optionFromProto(option *ravenv1.Option) (drivers.Option, error) {
	kind, err := fromEnum(optionTypes(), option.GetType(), "type")
	if err != nil {
		return drivers.Option{}, err
	}
	item, err := fromEnum(itemTypes(), option.GetItem(), "type of items")
	if err != nil {
		return drivers.Option{}, err
	}
	out := drivers.Option{
		Group: option.GetGroup(), Name: option.GetName(), Type: kind, Default: option.GetDefault(),
		HasDefault: option.Default != nil, Help: option.GetHelp(), Choices: option.GetChoices(),
		Required: option.GetRequired(),
		Secret:   option.GetSecret(), Min: option.Min, Max: option.Max, Env: option.GetEnv(),
		Item: item, Pattern: option.GetPattern(), IgnoreCase: option.GetIgnoreCase(), MaxLength: int(option.GetMaxLength()),
		Schemes: option.GetSchemes(), IPVersion: int(option.GetIpVersion()), ChoiceHelp: option.GetChoiceHelp(),
		SampleDefault: option.GetSampleDefault(), Advanced: option.GetAdvanced(),
		DeprecatedForRemoval: option.GetDeprecatedForRemoval(),
		DeprecatedSince:      option.GetDeprecatedSince(), DeprecatedReason: option.GetDeprecatedReason(),
	}
	for _, former := range option.GetDeprecated() {
		out.Deprecated = append(out.Deprecated, [2]string{former.GetGroup(), former.GetName()})
	}
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

func policies() map[drivers.Policy]ravenv1.Policy {
	return map[drivers.Policy]ravenv1.Policy{
		"": ravenv1.Policy_POLICY_UNSPECIFIED, drivers.Delete: ravenv1.Policy_POLICY_DELETE,
		drivers.Retain: ravenv1.Policy_POLICY_RETAIN,
	}
}

func modes() map[drivers.ContributionMode]ravenv1.ContributionMode {
	return map[drivers.ContributionMode]ravenv1.ContributionMode{
		"":              ravenv1.ContributionMode_CONTRIBUTION_MODE_UNSPECIFIED,
		drivers.Add:     ravenv1.ContributionMode_CONTRIBUTION_MODE_ADD,
		drivers.Replace: ravenv1.ContributionMode_CONTRIBUTION_MODE_REPLACE,
	}
}

func outputKinds() map[drivers.OutputKind]ravenv1.OutputKind {
	return map[drivers.OutputKind]ravenv1.OutputKind{
		drivers.Annotation: ravenv1.OutputKind_OUTPUT_KIND_ANNOTATION, drivers.Label: ravenv1.OutputKind_OUTPUT_KIND_LABEL,
		drivers.Ingress: ravenv1.OutputKind_OUTPUT_KIND_INGRESS,
	}
}

func severities() map[drivers.Severity]ravenv1.Severity {
	return map[drivers.Severity]ravenv1.Severity{
		drivers.Warning: ravenv1.Severity_SEVERITY_WARNING, drivers.Error: ravenv1.Severity_SEVERITY_ERROR,
		drivers.Note: ravenv1.Severity_SEVERITY_NOTE,
	}
}

func optionTypes() map[drivers.OptionType]ravenv1.OptionType {
	return map[drivers.OptionType]ravenv1.OptionType{
		drivers.StringOption:  ravenv1.OptionType_OPTION_TYPE_STRING,
		drivers.IntegerOption: ravenv1.OptionType_OPTION_TYPE_INTEGER,
		drivers.BooleanOption: ravenv1.OptionType_OPTION_TYPE_BOOLEAN,
		drivers.FloatOption:   ravenv1.OptionType_OPTION_TYPE_FLOAT,
		drivers.ListOption:    ravenv1.OptionType_OPTION_TYPE_LIST, drivers.DictOption: ravenv1.OptionType_OPTION_TYPE_DICT,
		drivers.PortOption:     ravenv1.OptionType_OPTION_TYPE_PORT,
		drivers.DurationOption: ravenv1.OptionType_OPTION_TYPE_DURATION,
		drivers.MultiOption:    ravenv1.OptionType_OPTION_TYPE_MULTI, drivers.IPOption: ravenv1.OptionType_OPTION_TYPE_IP,
		drivers.CIDROption: ravenv1.OptionType_OPTION_TYPE_CIDR, drivers.URIOption: ravenv1.OptionType_OPTION_TYPE_URI,
		drivers.HostnameOption:    ravenv1.OptionType_OPTION_TYPE_HOSTNAME,
		drivers.HostAddressOption: ravenv1.OptionType_OPTION_TYPE_HOST_ADDRESS,
	}
}

// itemTypes are optionTypes, and none: items are texts then.
func itemTypes() map[drivers.OptionType]ravenv1.OptionType {
	types := optionTypes()
	types[""] = ravenv1.OptionType_OPTION_TYPE_UNSPECIFIED
	return types
}

func toEnum[G ~string, P comparable](table map[G]P, from G, what string) (P, error) {
	to, ok := table[from]
	if !ok {
		return to, fmt.Errorf("%s %q is unknown", what, from)
	}
	return to, nil
}

func fromEnum[G ~string, P comparable](table map[G]P, from P, what string) (G, error) {
	for to, candidate := range table {
		if candidate == from {
			return to, nil
		}
	}
	return "", fmt.Errorf("%s %v is unknown", what, from)
}

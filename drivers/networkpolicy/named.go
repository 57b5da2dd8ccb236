// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/policy"
)

// source is what is read of a Pod.
type source struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool `json:"hostNetwork"`
		Containers  []struct {
			Ports []struct {
				Name          string `json:"name"`
				ContainerPort int64  `json:"containerPort"`
				Protocol      string `json:"protocol"`
			} `json:"ports"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// numbered returns the number of a port that is given by name: that of the pods that traffic goes to. A security group
// has one number for all its pods: where they differ, or one lacks the name, the port stays closed, and a diagnostic
// says so. When the needs are open afterwards, the answer does not count.
func (b *builder) numbered(direction string, peer policy.Peer, anybody bool, port policy.Port) (int64, bool) {
	if direction == "egress" && (anybody || peer.Pods == nil) {
		b.closed(port, "it goes to addresses, which name no ports")
		return 0, false
	}
	var found []source
	if direction == "ingress" {
		found = b.podsOf(b.policy.Namespace, b.policy.Pods.String(), nil)
	} else {
		found = b.selected(*peer.Pods)
	}
	var numbers []int64
	for _, pod := range found {
		if pod.Spec.HostNetwork || pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed" {
			continue // it has no port
		}
		if number := pod.port(port); !slices.Contains(numbers, number) {
			numbers = append(numbers, number)
		}
	}
	switch {
	case b.err != nil || b.needs.Open() || len(numbers) == 0:
		return 0, false
	case slices.Contains(numbers, 0):
		b.closed(port, "some of the pods do not name it")
	case len(numbers) > 1:
		slices.Sort(numbers)
		b.closed(port, fmt.Sprintf("it is another number in some of the pods: %v", numbers))
	default:
		return numbers[0], true
	}
	return 0, false
}

// port returns the number of a named port of a pod, 0 where it has none.
func (s source) port(named policy.Port) int64 {
	for _, container := range s.Spec.Containers {
		for _, port := range container.Ports {
			protocol := strings.ToLower(port.Protocol)
			if port.Name == named.Name && (protocol == named.Protocol || protocol == "" && named.Protocol == "tcp") {
				return port.ContainerPort
			}
		}
	}
	return 0
}

func (b *builder) closed(port policy.Port, why string) {
	message := fmt.Sprintf("port %q (%s) stays closed: %s; give its number in the policy", port.Name, port.Protocol, why)
	d := drivers.Diagnostic{Severity: drivers.Warning, Reason: "NamedPortClosed", Message: message}
	if !slices.Contains(b.set.Diagnostics, d) {
		b.set.Diagnostics = append(b.set.Diagnostics, d)
	}
}

// selected returns the pods that a pair selects.
func (b *builder) selected(pair drivers.SelectorPair) []source {
	text := pair.String()
	if _, there := b.chosen[text]; !there {
		b.chosen[text] = b.podsSelected(pair)
	}
	return b.chosen[text]
}

func (b *builder) podsSelected(pair drivers.SelectorPair) []source {
	if pair.Namespace != "" {
		return b.podsOf(pair.Namespace, pair.Objects.String(), nil)
	}
	found, answered := b.needs.Get(drivers.Need{Watch: namespaces, Selector: pair.Namespaces.String()})
	inside := map[string]bool{}
	for _, object := range found {
		meta, err := object.Meta()
		if err != nil {
			b.err = err
		}
		inside[meta.Name] = true
	}
	selected := b.podsOf("", pair.Objects.String(), inside)
	if !answered {
		return nil
	}
	return selected
}

// podsOf returns the pods that a selector selects, in one namespace or in some.
func (b *builder) podsOf(namespace, selector string, inside map[string]bool) []source {
	if _, err := labels.Parse(selector); err != nil {
		b.err = err
		return nil
	}
	objects, _ := b.needs.Get(drivers.Need{Watch: pods, Namespace: namespace, Selector: selector})
	var found []source
	for _, object := range objects {
		var pod source
		if err := object.Into(&pod); err != nil {
			b.err = err
			return nil
		}
		if inside == nil || inside[pod.Metadata.Namespace] {
			found = append(found, pod)
		}
	}
	return found
}

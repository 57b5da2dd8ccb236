// SPDX-License-Identifier: Apache-2.0

package services

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

const podsWatch = "pods"

// PodsWatch returns the watch that Pods needs.
func PodsWatch() drivers.Watch {
	return drivers.Watch{
		Name: podsWatch, GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod",
		Fields: []string{"spec.hostNetwork", "metadata.labels['" + SecurityGroupLabel + "']"},
	}
}

// Pod is where the addresses of a pod are, and what guards them.
type Pod struct {
	// HostNetwork says that they are its host's, on no network of Raven's.
	HostNetwork bool
	// OwnGroup says that a label gives its port a security group in place of its namespace's.
	OwnGroup bool
}

// Pods returns the Service's pods, and whether they are known yet. It is empty for a Service without a selector.
func Pods(needs *drivers.Needs, s *Service) (map[PodName]Pod, bool, error) {
	found := map[PodName]Pod{}
	if len(s.Spec.Selector) == 0 {
		return found, true, nil
	}
	objects, answered := needs.Get(drivers.Need{
		Watch: podsWatch, Namespace: s.Metadata.Namespace, Selector: labels.Set(s.Spec.Selector).String(),
	})
	for _, object := range objects {
		var pod struct {
			Metadata struct {
				Name      string            `json:"name"`
				Namespace string            `json:"namespace"`
				Labels    map[string]string `json:"labels"`
			} `json:"metadata"`
			Spec struct {
				HostNetwork bool `json:"hostNetwork"`
			} `json:"spec"`
		}
		if err := object.Into(&pod); err != nil {
			return nil, true, err
		}
		_, own := pod.Metadata.Labels[SecurityGroupLabel]
		found[PodName{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name}] = Pod{
			HostNetwork: pod.Spec.HostNetwork, OwnGroup: own,
		}
	}
	return found, answered, nil
}

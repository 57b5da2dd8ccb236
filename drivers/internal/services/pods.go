package services

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

const podsWatch = "pods"

// PodsWatch returns the watch that HostNetwork needs.
func PodsWatch() drivers.Watch {
	return drivers.Watch{
		Name: podsWatch, GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod",
		Fields: []string{"spec.hostNetwork"},
	}
}

// HostNetwork returns the Service's pods, as true those that are on their host's network, so that their addresses are on no network of
// Raven's, and whether they are known yet. It is empty for a Service without a selector.
func HostNetwork(needs *drivers.Needs, s *Service) (map[PodName]bool, bool, error) {
	found := map[PodName]bool{}
	if len(s.Spec.Selector) == 0 {
		return found, true, nil
	}
	objects, answered := needs.Get(drivers.Need{
		Watch: podsWatch, Namespace: s.Metadata.Namespace, Selector: labels.Set(s.Spec.Selector).String(),
	})
	for _, object := range objects {
		var pod struct {
			Metadata struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
			Spec struct {
				HostNetwork bool `json:"hostNetwork"`
			} `json:"spec"`
		}
		if err := object.Into(&pod); err != nil {
			return nil, true, err
		}
		found[PodName{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name}] = pod.Spec.HostNetwork
	}
	return found, answered, nil
}

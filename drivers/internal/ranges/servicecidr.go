// SPDX-License-Identifier: Apache-2.0

package ranges

import (
	"fmt"
	"net/netip"
	"sort"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// ServiceCIDRWatch is the name of the watch of ServiceCIDRs.
const ServiceCIDRWatch = "servicecidrs"

// ServiceCIDRs is the watch of Kubernetes' ServiceCIDR objects, for drivers that are not told the ranges of Services by
// an option.
func ServiceCIDRs() drivers.Watch {
	return drivers.Watch{
		Name:     ServiceCIDRWatch,
		GVR:      schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"},
		Kind:     "ServiceCIDR",
		Fields:   []string{"spec.cidrs"},
		Optional: true,
	}
}

// ReadServiceCIDRs returns the ranges of ServiceCIDR objects, those of the object that Kubernetes makes itself first.
func ReadServiceCIDRs(objects []drivers.Object) ([]netip.Prefix, error) {
	type serviceCIDR struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			CIDRs []string `json:"cidrs"`
		} `json:"spec"`
	}
	all := make([]serviceCIDR, len(objects))
	for i := range objects {
		if err := objects[i].Into(&all[i]); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		return all[i].Metadata.Name == "kubernetes" && all[j].Metadata.Name != "kubernetes"
	})
	var ranges []netip.Prefix
	for i := range all {
		for _, text := range all[i].Spec.CIDRs {
			r, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("ServiceCIDR %q: %q is not a range", all[i].Metadata.Name, text)
			}
			ranges = append(ranges, r.Masked())
		}
	}
	return ranges, nil
}

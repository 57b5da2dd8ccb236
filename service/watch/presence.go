// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// presencePage is how many objects are asked for at once.
const presencePage = 500

// ResourceName writes a resource for UIDs: as in "services" for version 1 of the core group, and
// "widgets.v1beta1.example.org" for others. It is empty where there is no resource.
func ResourceName(gvr schema.GroupVersionResource) string {
	switch {
	case gvr.Resource == "":
		return ""
	case gvr.Group == "" && gvr.Version == "v1":
		return gvr.Resource
	default:
		return gvr.Resource + "." + gvr.Version + "." + gvr.Group
	}
}

// UIDs reads from the API server itself which objects of a resource there are in the cluster; see ResourceName. It
// reads all of them, but of each its metadata only. An error means that nothing is known, also when the resource is
// not served.
func (c Clients) UIDs(ctx context.Context, resource string) (map[string]bool, error) {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
	if full, _ := schema.ParseResourceArg(resource); full != nil {
		gvr = *full
	}
	if c.Metadata == nil {
		return nil, errors.New("there is no way to read metadata")
	}
	uids := map[string]bool{}
	options := metav1.ListOptions{Limit: presencePage}
	for {
		page, err := c.page(ctx, gvr, options)
		if err != nil {
			return nil, fmt.Errorf("listing %s to see which of them are gone: %w", resourceText(gvr), err)
		}
		for _, object := range page.Items {
			uids[string(object.UID)] = true
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return uids, nil
		}
	}
}

func (c Clients) page(
	ctx context.Context, gvr schema.GroupVersionResource, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.Metadata.Resource(gvr).List(ctx, options)
}

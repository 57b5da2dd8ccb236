// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// NewClients returns the clients of one API server, which share their connections.
func NewClients(config *rest.Config) (Clients, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Clients{}, fmt.Errorf("connecting to the API server %s: %w", config.Host, err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return Clients{}, fmt.Errorf("connecting to the API server %s: %w", config.Host, err)
	}
	metadatas, err := metadata.NewForConfigAndClient(config, client)
	if err != nil {
		return Clients{}, fmt.Errorf("connecting to the API server %s: %w", config.Host, err)
	}
	discovery, err := newDiscovery(config, client)
	if err != nil {
		return Clients{}, fmt.Errorf("connecting to the API server %s: %w", config.Host, err)
	}
	return Clients{
		Dynamic: objects, Metadata: metadatas, Discovery: discovery, Access: reviewer{objects},
		closeIdle: func() { utilnet.CloseIdleConnectionsFor(client.Transport) },
	}, nil
}

// groupDiscovery asks for the document of one group and version.
// requestTimeout bounds a question to the API server that is no list or watch.
const requestTimeout = 30 * time.Second

type groupDiscovery struct{ client rest.Interface }

func newDiscovery(config *rest.Config, client *http.Client) (groupDiscovery, error) {
	c := dynamic.ConfigFor(config) // its serializer
	c.GroupVersion = &schema.GroupVersion{}
	c.APIPath = "/apis"
	restClient, err := rest.RESTClientForConfigAndClient(c, client)
	if err != nil {
		return groupDiscovery{}, fmt.Errorf("preparing discovery: %w", err)
	}
	return groupDiscovery{restClient}, nil
}

// Served implements Discovery.
func (d groupDiscovery) Served(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "/api/" + gvr.Version
	}
	raw, err := d.client.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking what %s serves: %w", path, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return false, fmt.Errorf("asking what %s serves: %w", path, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }), nil
}

// reviewer asks by SelfSubjectAccessReviews.
type reviewer struct{ dynamic dynamic.Interface }

// Missing implements Access.
func (r reviewer) Missing(
	ctx context.Context, gvr schema.GroupVersionResource, namespace string, verbs ...string,
) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var missing []string
	for _, verb := range verbs {
		allowed, err := r.allowed(ctx, authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource,
		})
		if err != nil {
			return nil, err
		}
		if !allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}

// Allowed asks whether the account of these clients may do something, by a SelfSubjectAccessReview.
func (c Clients) Allowed(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return reviewer{c.Dynamic}.allowed(ctx, what)
}

func (r reviewer) allowed(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		return false, fmt.Errorf("asking whether %s %s is allowed: %w", what.Verb, what.Resource, err)
	}
	answer, err := r.dynamic.Resource(authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")).
		Create(ctx, &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking whether %s %s is allowed: %w", what.Verb, what.Resource, err)
	}
	allowed, found, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	if err != nil || !found {
		return false, fmt.Errorf("asking whether %s %s is allowed: the answer has no status.allowed", what.Verb,
			what.Resource)
	}
	return allowed, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package rest makes requests to an OpenStack API for the suites of test/contract, and reads the documents that come
// back. It must never judge an answer: what is right is said by the suites.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
)

// Attrs is a JSON document.
type Attrs = map[string]any

// Reply is an answer of the cloud.
type Reply struct {
	Status int
	Header http.Header
	Body   Attrs // numbers are json.Number; nil where the answer is no JSON document
	Text   string
}

func (r Reply) String() string { return fmt.Sprintf("%d %.400s", r.Status, r.Text) }

// Client returns an HTTP client of the test's own.
func Client(t *testing.T, timeout time.Duration) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Timeout: timeout, Transport: transport}
}

// Do makes a request with the token of a service's client, and ends the test where there is no answer. The body is sent
// as JSON unless it is nil; headers are "Name: value".
func Do(
	t *testing.T, client *http.Client, service *gophercloud.ServiceClient, method, url string, body any, headers ...string,
) Reply {
	t.Helper()
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		in = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, in)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("X-Auth-Token", service.Token())
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	r := Reply{Status: response.StatusCode, Header: response.Header, Text: string(raw)}
	if len(raw) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&r.Body); err != nil {
			r.Body = nil // not every error page is JSON
		}
	}
	return r
}

// Docs returns the documents of a list.
func Docs(v any) []Attrs {
	l, _ := v.([]any)
	out := make([]Attrs, 0, len(l))
	for _, x := range l {
		m, _ := x.(Attrs)
		out = append(out, m)
	}
	return out
}

// Text returns a text or number of a document, "" where there is none.
func Text(doc Attrs, key string) string {
	switch v := doc[key].(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// Login logs in as a clouds.yaml says, and returns where its services are to be found.
func Login(t *testing.T, options ...clouds.ParseOption) (*gophercloud.ProviderClient, gophercloud.EndpointOpts) {
	t.Helper()
	auth, endpoint, tlsConfig, err := clouds.Parse(options...)
	if err != nil {
		t.Fatal(err)
	}
	auth.AllowReauth = true
	provider, err := config.NewProviderClient(t.Context(), auth, config.WithTLSConfig(tlsConfig))
	if err != nil {
		t.Fatal(err)
	}
	if transport, ok := provider.HTTPClient.Transport.(*http.Transport); ok {
		t.Cleanup(transport.CloseIdleConnections)
	}
	return provider, endpoint
}

// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// call is one request of a JSON API. An answer of 400 or more is an error that shows it.
func call(ctx context.Context, client *http.Client, method, url string, header http.Header, body, into any) error {
	_, err := callHeader(ctx, client, method, url, header, body, into)
	return err
}

// callHeader is call, and gives the answer's header too.
func callHeader(
	ctx context.Context, client *http.Client, method, url string, header http.Header, body, into any,
) (http.Header, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header = header.Clone()
	if request.Header == nil {
		request.Header = http.Header{}
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 400 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, response.Status, strings.TrimSpace(string(answer)))
	}
	if into == nil {
		return response.Header, nil
	}
	return response.Header, json.Unmarshal(answer, into)
}

// plainClient reaches the OpenStack APIs. Their servers may close a connection at any time: none is kept.
func plainClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// kubeClient is an administrator of the cluster.
func (s *Stack) kubeClient() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(s.path("pki", "admin.crt"), s.path("pki", "admin.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(s.path("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}

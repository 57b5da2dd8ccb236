// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"io"
	"net/http"
	"testing"
)

// get asks for a document; 0 is the status where there is no answer.
func get(tb testing.TB, url string) (int, []byte) {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, body
}

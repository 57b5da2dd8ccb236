// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// TestTokenExpiry gives Keystone's tokens 40 seconds to live and goes on making and deleting pods until Raven's token
// has been refused by Neutron and Raven has used another. No pod may suffer from it.
func TestTokenExpiry(t *testing.T) {
	if world.stack == nil {
		lacks(t, "Keystone's tokens live as long as they do: RAVEN_E2E_STACK is not set")
	}
	lifetime(t, "[token]\nexpiration = 40\n")
	t.Cleanup(func() { lifetime(t, "") })
	r := record(t)
	s := standing(t, harness.Settings{}.Set("neutron", "endpoint_override", r.url))
	createNamespace(t, "ex-a")
	for turn := 0; ; turn++ {
		name := func(i int) string { return fmt.Sprintf("p%d-%d", turn, i) }
		for i := range 3 {
			createPod(t, "ex-a", name(i))
		}
		for i := range 3 {
			await(t, "pod "+name(i)+" to have a port", func(ctx context.Context) string {
				if _, port, err := getPod(ctx, "ex-a", name(i)); err != nil || port == nil {
					return fmt.Sprintf("there is no annotation (%v)", err)
				}
				return ""
			})
			deletePod(t, "ex-a", name(i))
		}
		tokens, refused := r.tokens()
		if len(tokens) > 1 && refused > 0 {
			t.Logf("after %d turns Raven has used %d tokens; %d requests were answered 401", turn+1, len(tokens), refused)
			break
		}
		if turn > 300 {
			t.Fatalf("Raven has used the tokens %v, and %d requests were answered 401: nothing expired", tokens, refused)
		}
	}
	s.settled(t)
}

// lifetime sets options of Keystone, which is started anew.
func lifetime(t *testing.T, ini string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also at the end of a test
	defer cancel()
	if err := world.stack.Override(stack.Keystone, ini); err != nil {
		t.Fatal(err)
	}
	if err := world.stack.Restart(ctx, stack.Keystone); err != nil {
		t.Fatal(err)
	}
}

// tokens returns those that were used, and how many requests were refused for theirs.
func (r *recorder) tokens() (used []string, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.requests {
		if q.Status == http.StatusUnauthorized {
			refused++
		} else if !slices.Contains(used, q.Token) {
			used = append(used, q.Token)
		}
	}
	return used, refused
}

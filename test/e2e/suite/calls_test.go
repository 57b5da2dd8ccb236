// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
)

// calls calls an address that often, and returns how often each answer came; what failed begins with "!".
func (n *nic) calls(ctx context.Context, protocol, address string, times int) (map[string]int, error) {
	out, err := n.run(ctx, fmt.Sprintf("calls %s %s %d", protocol, address, times)).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s calls %s: %w: %s", n.pod, address, err, out)
	}
	answers := map[string]int{}
	for line := range strings.Lines(string(out)) {
		answers[strings.TrimSpace(line)]++
	}
	return answers, nil
}

// balanced waits until calls of an address are answered by all of these pods, and by nobody else.
func (n *nic) balanced(t *testing.T, protocol, address string, among ...string) {
	t.Helper()
	n.balancedAt(t, protocol, net.JoinHostPort(address, "80"), among...)
}

// balancedAt is balanced at an address and port.
func (n *nic) balancedAt(t *testing.T, protocol, at string, among ...string) {
	t.Helper()
	slices.Sort(among)
	await(t, fmt.Sprintf("%s to reach %v at %s by %s", n.pod, among, at, protocol), func(ctx context.Context) string {
		// First one, so that nobody waits for many in vain; then enough for each of three to be met three times but once in
		// thousands of times.
		for _, times := range []int{1, 36} {
			answers, err := n.calls(ctx, protocol, at, times)
			if err != nil {
				return err.Error()
			}
			for who, often := range answers {
				if !slices.Contains(among, who) || times > 1 && often < 3 {
					return fmt.Sprintf("the answers are %v", answers)
				}
			}
			if times > 1 && len(answers) != len(among) {
				return fmt.Sprintf("the answers are %v", answers)
			}
		}
		return ""
	})
}

// keeps waits until calls of an address are all answered by one pod, and returns it.
func (n *nic) keeps(t *testing.T, protocol, address string, among ...string) string {
	t.Helper()
	var with string
	await(t, fmt.Sprintf("%s to stay with one of %v at %s by %s", n.pod, among, address, protocol),
		func(ctx context.Context) string {
			answers, err := n.calls(ctx, protocol, net.JoinHostPort(address, "80"), 20)
			if err != nil {
				return err.Error()
			}
			for who := range answers {
				if with = who; len(answers) == 1 && slices.Contains(among, who) {
					return ""
				}
			}
			return fmt.Sprintf("the answers are %v", answers)
		})
	return with
}

// silence waits until nobody answers at an address.
func (n *nic) silence(t *testing.T, protocol, address string) {
	t.Helper()
	n.hears(t, protocol, net.JoinHostPort(address, "80"), "")
}

// unanswered waits until calls of an address and port come to nothing, not even to a refusal.
func (n *nic) unanswered(t *testing.T, protocol, at string) {
	t.Helper()
	n.hears(t, protocol, at, "i/o timeout")
}

// hears waits until calls of an address and port are all in vain, for a reason.
func (n *nic) hears(t *testing.T, protocol, at, why string) {
	t.Helper()
	await(t, fmt.Sprintf("%s to call %s by %s in vain: %q", n.pod, at, protocol, why), func(ctx context.Context) string {
		answers, err := n.calls(ctx, protocol, at, 2)
		if err != nil {
			return err.Error()
		}
		for answer := range answers {
			if !strings.HasPrefix(answer, "!") || !strings.Contains(answer, why) {
				return fmt.Sprintf("the answers are %v", answers)
			}
		}
		return ""
	})
}

// refused waits until calls are answered by a refusal, which is neither an answer nor silence.
func (n *nic) refused(t *testing.T, protocol, address string) {
	t.Helper()
	n.hears(t, protocol, net.JoinHostPort(address, "80"), "refused")
}

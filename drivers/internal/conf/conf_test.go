// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"errors"
	"testing"

	"github.com/kuryr/raven/drivers"
)

func TestOf(t *testing.T) {
	refused := errors.New("refused")
	o := New("sample", func(values drivers.Values) (string, error) {
		if text := values.String("g", "o"); text != "bad" {
			return text, nil
		}
		return "", refused
	})
	var unconfigured *UnconfiguredError
	if _, err := o.Config(); !errors.As(err, &unconfigured) || unconfigured.Driver != "sample" {
		t.Errorf("before Configure: %v", err)
	}
	for _, tc := range []struct {
		value, want string
		err         error
	}{{"one", "one", nil}, {"bad", "one", refused}, {"two", "two", nil}} {
		if err := o.Configure(t.Context(), drivers.Values{"g": {"o": tc.value}}); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", tc.value, err)
		}
		if c, err := o.Config(); err != nil || *c != tc.want {
			t.Errorf("after %s: %v, %v", tc.value, c, err)
		}
	}
}

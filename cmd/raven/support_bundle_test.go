// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/log"
)

// TestBundleOnAFullDisk: why it cannot be written is said once, however many files there are.
func TestBundleOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close() //nolint:errcheck // nothing is in it
	b := &bundle{redactor: log.NewRedactor()}
	random := rand.NewChaCha8([32]byte{}) // which does not get smaller
	for _, name := range []string{"a", "b", "c"} {
		text := make([]byte, 1<<18)
		_, _ = random.Read(text) // it has no errors
		b.add(name, text, nil)
	}
	if err := b.pack(full, "raven"); err == nil || strings.Count(err.Error(), "no space left") != 1 {
		t.Errorf("packing says %v", err)
	}
}

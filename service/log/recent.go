// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"slices"
	"sync"
)

// maxRecent is how much of what was logged last is kept, in bytes.
const maxRecent = 1 << 20

// recent keeps the last lines that were written to it, within a bound.
type recent struct {
	mu    sync.Mutex
	lines [][]byte
	size  int
}

// Write implements io.Writer: one line or several whole ones.
func (r *recent) Write(lines []byte) (int, error) {
	line := bytes.Clone(lines)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines, r.size = append(r.lines, line), r.size+len(line)
	drop := 0
	for r.size > maxRecent && drop < len(r.lines)-1 {
		r.size -= len(r.lines[drop])
		drop++
	}
	r.lines = slices.Delete(r.lines, 0, drop)
	return len(lines), nil
}

func (r *recent) text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Join(r.lines, nil)
}

// Recent returns what was logged last, at most a mebibyte, as text without colours and without secrets.
func (l *Log) Recent() []byte { return l.recent.text() }

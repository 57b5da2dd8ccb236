// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"time"
)

// unused is how long something is kept in the cache that is not asked for.
const unused = 7 * 24 * time.Hour

// cached gives the folder or file of the cache whose name is the prefix and the hash of what it is made from. Where it
// is missing, fill makes it at partial, which is a folder at first; what it fails to make is removed. Others with the
// prefix that were not asked for in a week go.
func cached(cache, prefix string, key hash.Hash, fill func(partial string) error) (string, error) {
	path := filepath.Join(cache, prefix+fmt.Sprintf("%x", key.Sum(nil))[:16])
	if _, err := os.Stat(path); err != nil {
		partial := fmt.Sprintf("%s.%d", path, os.Getpid())
		err := os.MkdirAll(partial, 0o755)
		if err == nil {
			err = fill(partial)
		}
		if err == nil {
			err = os.Rename(partial, path)
		}
		if err != nil {
			_ = os.RemoveAll(partial) // what failed is said below
			if _, other := os.Stat(path); other == nil {
				err = nil // another program has made it meanwhile
			}
		}
		if err != nil {
			return "", err
		}
	}
	if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(cache, prefix+"*"))
	if err != nil {
		return "", err
	}
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.RemoveAll(path) // the next run tries again
		}
	}
	return path, nil
}

// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// placed writes an executable into a folder of its own.
func placed(t *testing.T, content string) (folder, path string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "plugins")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(folder, "raven-driver-x")
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder, path
}

func TestOthersMayNotWriteToWhatRuns(t *testing.T) {
	const stranger = 12345
	for name, c := range map[string]struct {
		do   func(folder, path string) error
		says string // empty: it is safe
		root bool
	}{
		"as it is": {do: func(string, string) error { return nil }},
		"file for all": {
			do: func(_, path string) error { return os.Chmod(path, 0o757) }, says: "everybody may write",
		},
		"folder for all": {
			do: func(folder, _ string) error { return os.Chmod(folder, 0o777) }, says: "everybody may write",
		},
		"folder for all, sticky": {
			do: func(folder, _ string) error { return os.Chmod(folder, os.ModeSticky|0o777) }, says: "everybody may write",
		},
		"folder above, sticky": {
			do: func(folder, _ string) error { return os.Chmod(filepath.Dir(folder), os.ModeSticky|0o777) },
		},
		"folder above for all": {
			do: func(folder, _ string) error { return os.Chmod(filepath.Dir(folder), 0o777) }, says: "everybody may write",
		},
		"file of another user": {
			do: func(_, path string) error { return os.Chown(path, stranger, -1) }, says: "belongs to user 12345", root: true,
		},
		"folder of another user": {
			do: func(folder, _ string) error { return os.Chown(folder, stranger, -1) }, says: "belongs to user 12345",
			root: true,
		},
		"group of others may write": {
			do:   func(_, path string) error { return errors.Join(os.Chown(path, -1, stranger), os.Chmod(path, 0o775)) },
			says: "group 12345", root: true,
		},
		"group of others may read":   {do: func(_, path string) error { return os.Chown(path, -1, stranger) }, root: true},
		"link into an unsafe folder": {do: linkedThroughUnsafe, says: "everybody may write"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			folder, path := placed(t, "#!/bin/sh\n")
			if err := c.do(folder, path); err != nil {
				t.Fatal(err)
			}
			p, err := openProgram(path, "")
			if err == nil {
				p.close()
			}
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (!errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("want %q, got %v", c.says, err)
			}
		})
	}
}

// linkedThroughUnsafe makes the path a link to a link in a folder that everybody may write to.
func linkedThroughUnsafe(folder, path string) error {
	unsafe := filepath.Join(filepath.Dir(folder), "unsafe")
	target := filepath.Join(folder, "target")
	return errors.Join(os.Rename(path, target), os.Mkdir(unsafe, 0o700), os.Chmod(unsafe, 0o777),
		os.Symlink(target, filepath.Join(unsafe, "link")), os.Symlink("../unsafe/link", path))
}

func TestWhatWasCheckedIsWhatRuns(t *testing.T) {
	_, path := placed(t, "one")
	digest, err := Digest(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := openProgram(path, strings.ToUpper(digest))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if !p.byDescriptor() {
		t.Error("what is pinned runs by its descriptor")
	}
	if err := errors.Join(os.WriteFile(path+".new", []byte("two"), 0o755), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	if found, err := digestOf(p.file); err != nil || found != digest {
		t.Errorf("the open file became another: %s, %v", found, err)
	}
	if _, err := openProgram(path, digest); !errors.Is(err, ErrDigest) {
		t.Errorf("a replaced one: %v", err)
	}
}

func TestScriptsFindWhatLiesBesideThem(t *testing.T) {
	_, path := placed(t, "#!/bin/sh\n")
	p, err := openProgram(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if p.byDescriptor() {
		t.Error("a script that is not pinned runs by its name")
	}
}

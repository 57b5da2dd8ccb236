// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// An image is a layer whose digest its configuration names, all of it root's, and the same each time it is made.
func TestImagesAreWhatDockerSaves(t *testing.T) {
	one := image{
		name: "one", tags: []string{"registry.example/one:1"}, config: map[string]any{"Entrypoint": []string{"/bin/one"}},
		fill: func(_ context.Context, root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, "bin"), 0o755),
				os.WriteFile(filepath.Join(root, "bin", "one"), []byte("program"), 0o755),
				os.Symlink("one", filepath.Join(root, "bin", "two")), os.Chown(filepath.Join(root, "bin"), os.Getuid(), -1))
		},
	}
	var sums [2]string
	for i := range sums {
		dir := t.TempDir()
		if err := one.write(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("left: %v (%v)", entries, err)
		}
		content, err := os.ReadFile(filepath.Join(dir, "one.tar"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = fmt.Sprintf("%x", sha256.Sum256(content))
		if i == 0 {
			readImage(t, filepath.Join(dir, "one.tar"))
		}
	}
	if sums[0] != sums[1] {
		t.Error("made twice it differs")
	}
}

func readImage(t *testing.T, path string) {
	t.Helper()
	files := map[string][]byte{}
	for _, header := range readTar(t, path, files) {
		if header.Typeflag != tar.TypeReg {
			t.Errorf("%s is no file", header.Name)
		}
	}
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("%s (%v)", files["manifest.json"], err)
	}
	layer := files[manifest[0].Layers[0]]
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}, config.Rootfs.DiffIDs); diff != "" {
		t.Error(diff)
	}
	packed := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(packed, layer, 0o644); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, header := range readTar(t, packed, map[string][]byte{}) {
		if header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s is the user's %d %q", header.Name, header.Uid, header.Uname)
		}
		names = append(names, header.Name+header.Linkname)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"bin/", "bin/one", "bin/twoone"}, names); diff != "" {
		t.Error(diff)
	}
}

func readTar(t *testing.T, path string, files map[string][]byte) []*tar.Header {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // it is only read
	var headers []*tar.Header
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, header)
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// What is made is kept by what it is made from; what fails leaves nothing, and what no one asks for goes.
func TestTheCacheKeepsWhatIsAskedFor(t *testing.T) {
	dir := t.TempDir()
	made := 0
	ask := func(key string, fails error) (string, error) {
		hash := sha256.New()
		fmt.Fprint(hash, key)
		return cached(dir, "e2e-x-", hash, func(partial string) error {
			made++
			return errors.Join(os.WriteFile(filepath.Join(partial, "file"), nil, 0o644), fails)
		})
	}
	broken := errors.New("broken")
	if _, err := ask("a", broken); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	first, err := ask("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ask("a", broken); err != nil || again != first || made != 2 {
		t.Errorf("asked again it is made anew: %s, %v, made %d times", again, err, made)
	}
	long := time.Now().Add(-2 * unused)
	if err := os.Chtimes(first, long, long); err != nil {
		t.Fatal(err)
	}
	second, err := ask("b", nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || filepath.Join(dir, entries[0].Name()) != second {
		t.Errorf("left: %v (%v), not only %s", entries, err, second)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Command oci makes an OCI image layout with one image per architecture, each of one layer: the programs of an
// installation and the few files that a static program wants. There is no base image. It reads what it has written
// before it ends.
//
//	oci -version V -created UNIX-SECONDS [-ca BUNDLE] LAYOUT-FOLDER ARCH=ROOT...
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// user is who the image runs as: a number that no distribution gives out.
const user = 65532

func main() {
	version := flag.String("version", "dev", "the version of the programs")
	created := flag.Int64("created", 0, "when they were made, in seconds since 1970")
	bundle := flag.String("ca", "", "a file of authorities' certificates to trust")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: oci [flags] LAYOUT-FOLDER ARCH=ROOT...")
		os.Exit(2)
	}
	b := builder{version: *version, created: time.Unix(*created, 0).UTC(), bundle: *bundle}
	if err := b.build(flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oci:", err)
		os.Exit(1)
	}
}

type builder struct {
	version, bundle string
	created         time.Time
}

func (b builder) build(folder string, roots []string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	for _, root := range roots {
		arch, dir, ok := strings.Cut(root, "=")
		if !ok {
			return fmt.Errorf("%q: it must be ARCH=ROOT", root)
		}
		image, err := b.image(arch, dir)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		if err := path.AppendImage(image, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}),
			layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": b.version})); err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return err
	}
	return validate.Index(index)
}

func (b builder) image(arch, root string) (v1.Image, error) {
	layer, err := b.layer(root)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{CreatedBy: "make package", Created: v1.Time{Time: b.created}},
	}); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: b.created}
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Env: []string{"PATH=/usr/bin"}, WorkingDir: "/",
		Entrypoint: []string{"/usr/bin/raven"}, Cmd: []string{"run"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "raven", "org.opencontainers.image.version": b.version,
			"org.opencontainers.image.description": "The Kubernetes API watcher of Kuryr",
			"org.opencontainers.image.source":      "https://github.com/kuryr/raven",
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// layer packs usr/bin and usr/libexec of an installation, and what a program finds on any machine.
func (b builder) layer(root string) (v1.Layer, error) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	w := &writer{tar: tar.NewWriter(zip), at: b.created}
	for _, dir := range []string{
		"etc", "etc/kuryr", "usr", "usr/bin", "usr/lib", "usr/lib/raven", "usr/lib/raven/plugins", "usr/libexec", "usr/share",
		"usr/share/doc", "usr/share/doc/raven", "var",
	} {
		w.add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	w.add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	w.file("etc/passwd", 0o644,
		fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nraven:x:%d:%d:Raven:/:/sbin/nologin\n", user, user))
	w.file("etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nraven:x:%d:\n", user))
	if b.bundle != "" {
		certificates, err := os.ReadFile(b.bundle)
		if err != nil {
			return nil, err
		}
		w.add(tar.Header{Name: "etc/ssl/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		w.add(tar.Header{Name: "etc/ssl/certs/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		w.file("etc/ssl/certs/ca-certificates.crt", 0o644, certificates)
	}
	const licence = "usr/share/doc/raven/LICENSE"
	text, err := os.ReadFile(filepath.Join(root, licence))
	if err != nil {
		return nil, err
	}
	w.file(licence, 0o644, text)
	for _, part := range []string{"usr/bin", "usr/libexec"} {
		if err := w.tree(root, part); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.err, w.tar.Close(), zip.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer))
}

// writer writes entries that are the same whoever makes them when; the first error stays.
type writer struct {
	tar *tar.Writer
	at  time.Time
	err error
}

func (w *writer) add(h tar.Header, content []byte) {
	if w.err != nil {
		return
	}
	h.Size, h.ModTime, h.Format = int64(len(content)), w.at, tar.FormatPAX
	if w.err = w.tar.WriteHeader(&h); w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}

func (w *writer) file(name string, mode int64, content []byte) {
	w.add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}, content)
}

func (w *writer) tree(root, part string) error {
	return filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == part {
			return err
		}
		switch {
		case d.IsDir():
			w.add(tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			w.add(tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink, Mode: 0o777}, nil)
		default:
			if err := static(path); err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			w.file(name, 0o755, content)
		}
		return w.err
	})
}

// static refuses a program that wants a dynamic linker, which the image does not have.
func static(path string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically: build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

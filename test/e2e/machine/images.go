// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// imageParts are what images are made of: folders of the cache, whose names say what is in them.
type imageParts struct {
	programs   string // with coredns and pause
	kubernetes string // with agnhost
	userland   string // Debian's packages, unpacked
	busybox    string // Debian's static busybox
	modules    string // the modules kubernetes and node
}

// image is a container image of one layer.
type image struct {
	name   string
	tags   []string // the names that upstream's tests ask for
	config map[string]any
	fill   func(ctx context.Context, root string) error
}

// upstreamImages begins the names of images that upstream's tests ask for.
const upstreamImages = "registry.k8s.io/e2e-test-images/"

// images gives the archives of the images, in the form that `docker save` writes.
func images(ctx context.Context, cache string, parts imageParts, progress io.Writer) ([]string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, "2", filepath.Base(parts.programs), filepath.Base(parts.kubernetes),
		filepath.Base(parts.userland), filepath.Base(filepath.Dir(filepath.Dir(parts.busybox)))) // 1: of what follows
	all := parts.images()
	dir, err := cached(cache, "e2e-images-", hash, func(partial string) error {
		began := time.Now()
		for _, one := range all {
			if err := one.write(ctx, partial); err != nil {
				return fmt.Errorf("making image %s: %w", one.name, err)
			}
		}
		fmt.Fprintf(progress, "made container images in %.0f s\n", time.Since(began).Seconds())
		return nil
	})
	var archives []string
	for _, one := range all {
		archives = append(archives, filepath.Join(dir, one.name+".tar"))
	}
	return archives, err
}

func (p imageParts) images() []image {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return []image{
		{
			name: "pause", tags: []string{"registry.k8s.io/pause:3.10.2", "registry.k8s.io/pause:3.10.1"},
			config: map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535"},
			fill: func(_ context.Context, root string) error {
				return copyFile(filepath.Join(p.programs, "pause"), filepath.Join(root, "pause"))
			},
		},
		{
			name: "busybox", tags: []string{upstreamImages + "busybox:1.37.0-1"},
			config: map[string]any{"Env": env, "Cmd": []string{"sh"}}, fill: p.fillBusybox,
		},
		{
			name: "agnhost", tags: []string{upstreamImages + "agnhost:2.63.0", upstreamImages + "glibc-dns-testing:2.0.0"},
			config: map[string]any{
				"Env": env, "Entrypoint": []string{"/agnhost"}, "Cmd": []string{"pause"},
				"ExposedPorts": map[string]any{"80/tcp": map[string]any{}},
			},
			fill: p.fillAgnhost,
		},
		{
			name: "coredns", tags: []string{"registry.k8s.io/coredns/coredns:e2e"},
			config: map[string]any{"Entrypoint": []string{"/coredns"}},
			fill: func(_ context.Context, root string) error {
				return copyFile(filepath.Join(p.programs, "coredns"), filepath.Join(root, "coredns"))
			},
		},
	}
}

// fillBusybox makes the file system of busybox, with a link for each of its applets.
func (p imageParts) fillBusybox(ctx context.Context, root string) error {
	if err := folders(root, "bin", "etc", "tmp", "root", "home", "proc", "sys", "dev", "var/www", "usr"); err != nil {
		return err
	}
	program := filepath.Join(root, "bin", "busybox")
	if err := copyFile(p.busybox, program); err != nil {
		return err
	}
	applets, err := run(exec.CommandContext(ctx, program, "--list"))
	if err != nil {
		return err
	}
	errs := []error{os.Symlink("../bin", filepath.Join(root, "usr", "bin")), accounts(root, "/bin/sh")}
	for _, applet := range strings.Fields(applets) {
		if applet != "busybox" {
			errs = append(errs, os.Symlink("busybox", filepath.Join(root, "bin", applet)))
		}
	}
	return errors.Join(errs...)
}

// fillAgnhost makes the file system of agnhost: upstream's program, CoreDNS, which upstream's tests run from this image
// as a name server, and Debian's tools that they run in its containers.
func (p imageParts) fillAgnhost(ctx context.Context, root string) error {
	if _, err := run(exec.CommandContext(ctx, "cp", "-a", p.userland+"/.", root)); err != nil {
		return err
	}
	for _, needless := range []string{"doc", "man", "locale", "info", "perl", "perl5", "i18n"} {
		if err := os.RemoveAll(filepath.Join(root, "usr", "share", needless)); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{
		filepath.Join(p.kubernetes, "agnhost"): "agnhost", filepath.Join(p.programs, "coredns"): "coredns",
	} {
		if err := copyFile(from, filepath.Join(root, to)); err != nil {
			return err
		}
	}
	source, err := moduleFolder(ctx, filepath.Join(p.modules, "kubernetes"), "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	for _, name := range []string{"localhost.crt", "localhost.key"} { // agnhost's porter serves with them
		err := copyFile(filepath.Join(source, "test", "images", "agnhost", "porter", name), filepath.Join(root, name))
		if err != nil {
			return err
		}
	}
	if err := folders(root, "uploads", "tmp", "root", "home"); err != nil {
		return err
	}
	// What the packages' scripts would have linked.
	for link, target := range map[string]string{
		"agnhost-2": "agnhost", "bin/sh": "dash", "bin/nc": "nc.openbsd", "usr/bin/awk": "mawk",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := accounts(root, "/bin/sh"); err != nil {
		return err
	}
	_, err = run(exec.CommandContext(ctx, "ldconfig", "-r", root))
	return err
}

// moduleFolder is where Go keeps the source of a module that another one pins.
func moduleFolder(ctx context.Context, source, module string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir = source
	command.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := run(command)
	return strings.TrimSpace(out), err
}

func folders(root string, names ...string) error {
	for _, name := range names {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if name == "tmp" {
			if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
				return err
			}
		}
	}
	return nil
}

// accounts writes the users and groups of an image.
func accounts(root, shell string) error {
	users := "root:x:0:0:root:/root:" + shell + "\nnobody:x:65534:65534:nobody:/:" + shell + "\n"
	return errors.Join(
		os.WriteFile(filepath.Join(root, "etc", "passwd"), []byte(users), 0o644),
		os.WriteFile(filepath.Join(root, "etc", "group"), []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644))
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// write fills the image's file system and packs it.
func (i image) write(ctx context.Context, into string) error {
	root, err := os.MkdirTemp(into, i.name)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }() // with the folder of the cache, if not now
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	if err := i.fill(ctx, root); err != nil {
		return err
	}
	layer := filepath.Join(into, i.name+".layer")
	defer func() { _ = os.Remove(layer) }() // as above
	digest, err := packLayer(root, layer)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": i.config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": configName, "RepoTags": i.tags, "Layers": []string{digest + ".tar"},
	}})
	if err != nil {
		return err
	}
	content, err := os.Open(layer)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it is only read
	info, err := content.Stat()
	if err != nil {
		return err
	}
	return writeArchive(filepath.Join(into, i.name+".tar"), []entry{
		{configName, bytes.NewReader(config), int64(len(config))},
		{digest + ".tar", content, info.Size()},
		{"manifest.json", bytes.NewReader(manifest), int64(len(manifest))},
	})
}

// entry is a file of an archive.
type entry struct {
	name    string
	content io.Reader
	size    int64
}

func writeArchive(path string, entries []entry) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(file)
	for _, e := range entries {
		if err = archive.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: e.size}); err != nil {
			break
		}
		if _, err = io.Copy(archive, e.content); err != nil {
			break
		}
	}
	return errors.Join(err, archive.Close(), file.Close())
}

// packLayer packs a file system, all of it root's and without times, and gives the archive's digest.
func packLayer(root, path string) (string, error) {
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(file, hash))
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return packFile(archive, root, path, entry)
	})
	if err := errors.Join(err, archive.Close(), file.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}

func packFile(archive *tar.Writer, root, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	if header.Name, err = filepath.Rel(root, path); err != nil {
		return err
	}
	if info.IsDir() {
		header.Name += "/"
	}
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	header.ModTime, header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}, time.Time{}
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	content, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(archive, content)
	return errors.Join(err, content.Close())
}

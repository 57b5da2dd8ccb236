// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// unused is how long a built control plane is kept that nobody starts.
const unused = 7 * 24 * time.Hour

// ControlPlane gives the program of the module in source, which is test/e2e/kubernetes. It is built once for its
// sources, its pinned modules and the version of Go, and kept in cache; then this takes no time.
func ControlPlane(ctx context.Context, source, cache string, progress io.Writer) (string, error) {
	key, version, err := controlPlaneKey(ctx, source)
	if err != nil {
		return "", err
	}
	const prefix = "e2e-controlplane-"
	program := filepath.Join(cache, prefix+key)
	if _, err := os.Stat(program); err != nil {
		if err := buildControlPlane(ctx, source, program, version, progress); err != nil {
			return "", err
		}
	}
	if err := os.Chtimes(program, time.Now(), time.Now()); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(cache, prefix+"*"))
	if err != nil {
		return "", err
	}
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.Remove(path) // the next run tries again
		}
	}
	return program, nil
}

// controlPlaneKey gives the key in the cache, and Kubernetes' version.
func controlPlaneKey(ctx context.Context, source string) (key, version string, err error) {
	hash := sha256.New()
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", "", fmt.Errorf("asking for Go's version: %w", err)
	}
	hash.Write(goVersion)
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", "", err
		}
		hash.Write(content)
		if found := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`).FindSubmatch(content); found != nil &&
			name == "go.mod" {
			version = string(found[1])
		}
	}
	if version == "" {
		return "", "", fmt.Errorf("%s/go.mod does not require k8s.io/kubernetes", source)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))[:16], version, nil
}

// buildControlPlane builds it: 10 minutes on two cores with empty caches, 20 s with Go's own caches filled
// (measured). -trimpath and the modules' versions are part of what Go caches by.
func buildControlPlane(ctx context.Context, source, program, version string, progress io.Writer) error {
	fmt.Fprintf(progress, "building etcd, Kubernetes %s and kwok; up to 15 minutes with empty caches\n", version)
	began := time.Now()
	var flags strings.Builder
	flags.WriteString("-s -w")
	number := strings.Split(strings.TrimPrefix(version, "v"), ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for name, value := range map[string]string{
			"gitVersion": version, "gitMajor": number[0], "gitMinor": number[1], "gitTreeState": "archive",
			"buildDate": "1970-01-01T00:00:00Z",
		} {
			fmt.Fprintf(&flags, " -X %s.%s=%s", pkg, name, value)
		}
	}
	partial := fmt.Sprintf("%s.%d", program, os.Getpid())
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", flags.String(), "-o", partial, ".")
	command.Dir = source
	command.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")
	out, err := command.CombinedOutput()
	if err != nil {
		_ = os.Remove(partial)
		return fmt.Errorf("building the control plane: %w\n%s", err, end(out))
	}
	fmt.Fprintf(progress, "built in %.0f s\n", time.Since(began).Seconds())
	return os.Rename(partial, program)
}

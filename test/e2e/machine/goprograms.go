// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// goPrograms are programs of Go modules, which the module in source pins.
type goPrograms struct {
	prefix   string   // of the name in the cache
	source   string   // the folder of the module
	packages []string // those with the main functions, or the one whose tests are the program
	what     string   // what is built, for a person
	flags    string   // for the linker
	tags     string
	test     string // the name of the program, if it is a test
}

// build gives the folder of the cache with the programs. They are built once for the sources of the module, its pinned
// modules, the version of Go and how they are built.
func (p goPrograms) build(ctx context.Context, cache string, progress io.Writer) (string, error) {
	hash := sha256.New()
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("asking for Go's version: %w", err)
	}
	fmt.Fprintln(hash, string(goVersion), p.packages, p.flags, p.tags, p.test)
	flags := []string{"-s", "-w", p.flags}
	err = filepath.WalkDir(p.source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isSource(path) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintln(hash, entry.Name(), len(content))
		hash.Write(content)
		if version := requiredKubernetes.FindSubmatch(content); entry.Name() == "go.mod" && version != nil {
			flags = append(flags, kubernetesFlags(string(version[1])))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return cached(cache, p.prefix, hash, func(partial string) error {
		fmt.Fprintln(progress, "building", p.what)
		began := time.Now()
		if _, err := run(p.command(ctx, partial, strings.Join(flags, " "))); err != nil {
			return fmt.Errorf("building %s: %w", p.what, err)
		}
		fmt.Fprintf(progress, "built in %.0f s\n", time.Since(began).Seconds())
		return nil
	})
}

// command is the call of Go. -trimpath and the modules' versions are part of what Go caches by.
func (p goPrograms) command(ctx context.Context, into, flags string) *exec.Cmd {
	args := []string{"build", "-trimpath", "-ldflags", flags, "-tags", p.tags, "-o", into + "/"}
	if p.test != "" {
		args = []string{"test", "-c", "-trimpath", "-ldflags", flags, "-o", filepath.Join(into, p.test)}
	}
	command := interruptible(ctx, "go", append(args, p.packages...)...)
	command.Dir = p.source
	command.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")
	return command
}

// isSource says whether a file of a module decides what is built.
func isSource(path string) bool {
	name := filepath.Base(path)
	return strings.HasSuffix(name, ".go") || name == "go.mod" || name == "go.sum"
}

// requiredKubernetes is the version of Kubernetes in a go.mod.
var requiredKubernetes = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`)

// kubernetesFlags make Kubernetes' programs say which version they are.
func kubernetesFlags(version string) string {
	number := strings.Split(strings.TrimPrefix(version, "v"), ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, set := range []string{
			"gitVersion=" + version, "gitMajor=" + number[0], "gitMinor=" + number[1], "gitTreeState=archive",
			"buildDate=1970-01-01T00:00:00Z",
		} {
			flags = append(flags, "-X "+pkg+"."+set)
		}
	}
	return strings.Join(flags, " ")
}

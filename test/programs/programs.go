// SPDX-License-Identifier: Apache-2.0

// Package programs provides the programs that tests run as processes: raven, raven-sim and the drivers, as users get
// them, without the race detector. It must never be needed by what is shipped.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Env is the variable that names a folder with the programs, built already, for all test packages of one run.
// Without it each builds its own.
const Env = "RAVEN_TEST_PROGRAMS"

const module = "github.com/kuryr/raven/"

// Raven, CNI, Sim and the drivers are the packages of the programs, in this module.
const (
	Raven     = "cmd/raven"
	CNI       = "cmd/raven-cni"
	Sim       = "cmd/raven-sim"
	Namespace = "plugins/raven-driver-namespace"
	Pod       = "plugins/raven-driver-pod"
	Node      = "plugins/raven-driver-node"
	LBaaS     = "plugins/raven-driver-lbaas"
	KubeProxy = "plugins/raven-driver-kubeproxy"
	Policy    = "plugins/raven-driver-networkpolicy"
	First     = "test/drivers/raven-driver-first"
	Flat      = "test/drivers/raven-driver-flatns"
	Hostile   = "test/drivers/raven-driver-hostile"
	EmptyPod  = "test/system/testdata/emptypod"
	Protocol2 = "test/system/testdata/otherprotocol"
	Namer     = "service/daemon/testdata/namer"
	Defective = "plugins/sdktest/conformance/testdata/defective"
)

// Shipped are the packages of raven and of the drivers that come with it.
func Shipped() []string { return []string{Raven, Namespace, Pod, Node, LBaaS, KubeProxy, Policy} }

// Put puts programs into a folder, each under the last part of its package's path.
func Put(folder string, packages ...string) error {
	if built := os.Getenv(Env); built != "" {
		for _, name := range packages {
			name = filepath.Base(name)
			if err := os.Link(filepath.Join(built, name), filepath.Join(folder, name)); err != nil {
				return err
			}
		}
		return nil
	}
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", folder + string(filepath.Separator)}
	for _, name := range packages {
		args = append(args, module+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil { //nolint:noctx // it ends by itself
		return fmt.Errorf("building %v: %w: %s", packages, err, out)
	}
	return nil
}

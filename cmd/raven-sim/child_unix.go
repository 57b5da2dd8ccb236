// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package main

import "syscall"

// childAttributes: Ctrl-C is for us, who then stop the child in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// SPDX-License-Identifier: Apache-2.0

//go:build !amd64 && !arm64

package confine

const machine, foreign uint32 = 0, 0

func architecture() []uint32 { return nil }

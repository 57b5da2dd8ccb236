#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The machine's power supply: holds what the machine writes, in a mount namespace of its own, and boots it again when it reboots.
#   outer.sh WORK BOOT      WORK is an empty folder, BOOT the script that boots
set -eu
work=$1 boot=$2
mount --make-rprivate /
mount -t tmpfs -o size=2g,mode=0755 raven-e2e "$work"
mkdir "$work/upper" "$work/overlay" "$work/root"
# A control group of its own, which will be the machine's root.
hierarchy=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/self/mounts)
if [ -z "$hierarchy" ]; then
	hierarchy=$work/cgroup
	mkdir "$hierarchy"
	mount -t cgroup2 cgroup2 "$hierarchy"
fi
group=$hierarchy/raven-e2e-$$
# The kernel removes no group with a process in it, not even one that ends just now.
remove() {
	[ ! -e "$1/cgroup.kill" ] || echo 1 >"$1/cgroup.kill"
	for _ in $(seq 100); do
		find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null || true
		[ -e "$1" ] || return 0
		sleep 0.1
	done
	echo "control group $1 cannot be removed" >&2
}
# A machine whose test was killed had nobody to clean up after it. The number is that of its outer.sh.
for left in "$hierarchy"/raven-e2e-*; do
	if [ -e "$left" ] && [ ! -e "/proc/${left##*-}" ]; then
		remove "$left"
	fi
done
mkdir "$group"
echo $$ >"$group/cgroup.procs"
clean() {
	echo $$ >"$hierarchy/cgroup.procs"
	remove "$group"
}
trap clean EXIT
while :; do
	status=0
	setpriv --pdeathsig KILL unshare --fork --kill-child --pid --mount --uts --ipc --cgroup --mount-proc "$boot" "$work" || status=$?
	[ "$status" -eq 129 ] || exit "$status" # a kernel ends the first process of a machine that reboots by SIGHUP
done

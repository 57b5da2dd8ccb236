#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots this Debian as a machine of its own: process 1 of new namespaces becomes systemd. What it writes goes to WORK.
#   boot.sh WORK
set -eu
work=$1
root=$work/root
mount -t overlay -o lowerdir=/,upperdir="$work/upper",workdir="$work/overlay" overlay "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
# Nothing of what else is installed here starts: the machine is systemd, its journal, and what is put on it.
if [ ! -e "$root/etc/raven-e2e" ]; then
	rm -rf "$root"/etc/systemd/system/* "$root"/lib/systemd/system-generators "$root"/usr/lib/systemd/user-generators "$root"/etc/fstab
	for target in "$root"/lib/systemd/system/*.target.wants; do
		rm -rf "$target"
	done
	mkdir -p "$root/lib/systemd/system/sysinit.target.wants" "$root/lib/systemd/system/sockets.target.wants"
	ln -s ../systemd-journald.service "$root/lib/systemd/system/sysinit.target.wants/"
	ln -s ../systemd-tmpfiles-setup.service "$root/lib/systemd/system/sysinit.target.wants/"
	ln -s ../systemd-journald.socket "$root/lib/systemd/system/sockets.target.wants/"
	ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
	rm -rf "$root/var/log/journal"
	mkdir "$root/var/log/journal"
	echo raven-e2e >"$root/etc/hostname"
	touch "$root/etc/raven-e2e"
fi
cd "$root"
pivot_root . mnt
umount -l mnt
mount --make-rshared / # as systemd itself has it where it boots a machine: credentials come by that way
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --show-status=no --log-level=notice

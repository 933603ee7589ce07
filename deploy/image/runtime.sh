#!/bin/sh
# Prepares a bare Debian to run what build.sh made: Python, a user without rights, a directory that is theirs. Runs as root.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# Repairs that are newer than the base image.
apt-get upgrade -q -y
apt-get install -q -y --no-install-recommends ca-certificates python3
rm -rf /var/lib/apt/lists/*

# The number is fixed: volumes and `runAsUser` refer to it.
groupadd --gid 10001 runekeep
useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/runekeep --shell /usr/sbin/nologin runekeep
install -d -o runekeep -g runekeep -m 0700 /var/lib/runekeep

#!/bin/sh
# Makes /opt/runekeep, a virtual environment with Runekeep in it, from the source tree in the current directory. Runs as
# root in a bare Debian; the Dockerfile's first stage is this script and nothing else.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends ca-certificates python3 python3-venv

python3 -m venv /opt/runekeep
made=$(mktemp -d)
# The lock's first part, with the extras bilingual and telemetry, and what builds the wheel.
sed '/^# development$/,$d' requirements.lock >"$made/requirements.lock"
/opt/runekeep/bin/pip install --quiet --require-hashes --requirement "$made/requirements.lock"
/opt/runekeep/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$made" .
/opt/runekeep/bin/pip install --quiet --no-deps "$made"/*.whl
rm -r "$made"

# What is in the image, for those who scan it: of this platform, and of every one as CycloneDX.
/opt/runekeep/bin/pip freeze >/opt/runekeep/packages.txt
install -m 0644 deploy/image/sbom.cdx.json /opt/runekeep/sbom.cdx.json
# Nothing is installed later.
/opt/runekeep/bin/pip uninstall --quiet --yes pip setuptools

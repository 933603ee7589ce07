#!/bin/sh
# Makes /opt/runekeep, a virtual environment with Runekeep in it, from the source tree in the current directory. Runs as
# root in a bare Debian; the Dockerfile's first stage is this script and nothing else.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends ca-certificates python3 python3-venv

python3 -m venv /opt/runekeep
build=$(mktemp -d)
# The first part of the lock: all packages of the image, with the extras bilingual, studio and telemetry, and the build tools.
sed '/^# development$/,$d' requirements.lock >"$build/requirements.lock"
/opt/runekeep/bin/pip install --quiet --require-hashes --requirement "$build/requirements.lock"
/opt/runekeep/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$build" .
/opt/runekeep/bin/pip install --quiet --no-deps "$build"/*.whl
rm -r "$build"

# Lists the image's Python packages for scanners: those of this platform, and as CycloneDX those of all platforms.
/opt/runekeep/bin/pip freeze >/opt/runekeep/packages.txt
install -m 0644 deploy/image/sbom.cdx.json /opt/runekeep/sbom.cdx.json
# Nothing is installed later.
/opt/runekeep/bin/pip uninstall --quiet --yes pip hatchling pathspec pluggy tomlkit trove-classifiers

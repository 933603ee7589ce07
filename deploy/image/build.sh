#!/bin/sh
# Makes /opt/runekeep, a virtual environment with Runekeep in it, from the source tree in the current directory. Runs as
# root in a bare Debian; the Dockerfile's first stage is this script and nothing else.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends ca-certificates python3 python3-venv

python3 -m venv /opt/runekeep
wheels=$(mktemp -d)
/opt/runekeep/bin/pip wheel --quiet --no-deps --wheel-dir "$wheels" .
for wheel in "$wheels"/*.whl; do
    /opt/runekeep/bin/pip install --quiet "${wheel}[bilingual,telemetry]"
done
rm -r "$wheels"

# What is in the image, for those who scan it or want the same once more.
/opt/runekeep/bin/pip freeze >/opt/runekeep/packages.txt
# Nothing is installed later.
/opt/runekeep/bin/pip uninstall --quiet --yes pip setuptools

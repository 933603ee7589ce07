#!/usr/bin/env bash
# Runs what build.sh compiled: tour.sh HOST:PORT
set -euo pipefail
cd "$(dirname "$0")"
source ./classpath.sh
exec java -Djava.library.path=build dev.runekeep.tour.Tour "$@"

#!/usr/bin/env bash
# Compiles the tour with the stubs of `make stubs-java`, without Maven and without a network, against Debian's packages.
set -euo pipefail
cd "$(dirname "$0")"
source ./classpath.sh
rm -rf build
mkdir build
find gen src -name '*.java' >build/sources
javac --release 17 -proc:none -nowarn -d build @build/sources
# TLS: Debian's Netty has no ALPN but that of OpenSSL, and looks for the library under another name than its package gives it.
cp /usr/lib/"$(uname -m)"-linux-gnu/jni/libnetty-tcnative.so build/libnetty_tcnative.so

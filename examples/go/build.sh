#!/usr/bin/env bash
# Compiles the tour with the stubs of `make stubs-go`, without modules and without a network: packages come from Debian's
# golang-google-grpc-dev and golang-google-protobuf-dev, below /usr/share/gocode.
set -euo pipefail
cd "$(dirname "$0")"
export GO111MODULE=off GOPATH="$PWD/gen:/usr/share/gocode"
go vet runekeep.dev/gen/... ./tour
go build -o build/tour ./tour

#!/bin/sh
# Makes an authority of its own and one certificate for servers and Envoy: certificates.sh DIRECTORY [NAME...]
# NAMEs are further DNS names of the certificate. What is there and valid for another 30 days stays; the authority stays
# in any case, so that callers keep their ca.pem.
set -eu
umask 077

directory=$1
shift
mkdir -p "$directory"
cd "$directory"

if [ ! -s ca.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 -subj "/CN=Runekeep" \
        -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout ca.key -out ca.pem 2>/dev/null
fi

if ! openssl x509 -in server.pem -noout -checkend 2592000 >/dev/null 2>&1; then
    names="DNS:server,DNS:envoy,DNS:localhost,IP:127.0.0.1"
    for name in "$@"; do
        names="$names,DNS:$name"
    done
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=server" -keyout server.key.new \
        -out server.csr 2>/dev/null
    printf 'subjectAltName=%s\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n' "$names" >extensions
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 397 -extfile extensions \
        -out server.pem.new 2>/dev/null
    # Both are whole before one of them is seen.
    mv server.key.new server.key
    mv server.pem.new server.pem
    rm server.csr extensions
fi

chmod 755 .
chmod 644 ca.pem server.pem

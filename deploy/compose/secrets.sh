#!/bin/sh
# Makes the file .env beside compose.yaml, with random secrets, or another one: secrets.sh [FILE]. One that is there stays.
set -eu
umask 077

here=$(cd "$(dirname "$0")" && pwd)
file=${1:-$here/.env}
if [ -e "$file" ]; then
    echo "$file is there already" >&2
    exit 1
fi
# Letters and digits: a password is also part of a URL.
while IFS= read -r line; do
    case $line in
    *=random) printf '%s=%s\n' "${line%=random}" "$(openssl rand -hex 24)" ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$here/env.example" >"$file.new"
mv "$file.new" "$file"
echo "Wrote $file"

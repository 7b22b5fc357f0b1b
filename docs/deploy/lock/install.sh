#!/bin/sh
# Install packages with exactly the dependencies that requirements.txt locks, for the Python of a virtual environment:
#
#   docs/deploy/lock/install.sh work/bin/python '.[policies,s3]'
#
# pip compares everything that it fetches with the hashes of the lock. Then it installs without an index, so a
# dependency that the lock lacks ends the installation.
set -eu
lock=$(dirname "$0")/requirements.txt
python=$1
shift
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
"$python" -m pip download --quiet --no-cache-dir --no-deps --require-hashes --dest "$fetched" --requirement "$lock"
# Directories of packages in pip's own settings hold what is not locked.
unset PIP_FIND_LINKS
PIP_CONFIG_FILE=/dev/null "$python" -m pip install --quiet --no-cache-dir --no-index --find-links "$fetched" "$@"

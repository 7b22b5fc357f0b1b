#!/bin/sh
# Build the Debian packages of this checkout, or of this unpacked sdist, into a directory:
#
#   apt-get install build-essential debhelper git python3-venv
#   DEBFULLNAME="Ada" DEBEMAIL=ada@example.org docs/deploy/debian/build.sh DIRECTORY
#
# dpkg-buildpackage wants debian/ at the top of the sources.  It is put into a copy, so that it does not stand among the
# files of the project, where packagers of a distribution have one of their own.  Changes that are not committed are
# left out of a checkout's packages.
set -eu
top=$(cd "$(dirname "$0")/../../.." && pwd)
mkdir -p "$1"
result=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^_RELEASE = "\(.*\)"/\1/p' "$top/twisted_exec/__init__.py" | sed 's/\.dev/~dev/; s/rc/~rc/')
if [ -e "$top/.git" ]; then
    git clone -q "$top" "$work/source"
    case $version in *~dev*) version=$version$(git -C "$top" log -1 --date=format:%Y%m%d%H%M%S --format=+%cd.g%h) ;; esac
    date=$(git -C "$top" log -1 --format=%cD)
else
    cp -r "$top" "$work/source"
    date=$(date -R)
fi
maintainer="${DEBFULLNAME:-twisted-exec} <${DEBEMAIL:-packages@example.org}>"
cd "$work/source"
cp -r docs/deploy/debian debian
sed -i "s|@MAINTAINER@|$maintainer|" debian/control
cat > debian/changelog <<END
twisted-exec ($version) unstable; urgency=medium

  * CHANGELOG.rst of the sources lists the changes.

 -- $maintainer  $date
END
dpkg-buildpackage -us -uc -b
mv ../*.deb "$result"

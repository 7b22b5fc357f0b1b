# Unpack the newest OpenSSH of Debian with its libraries into $WORK, and write commands that run it into $BIN.
set -euo pipefail
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' 'Component: main' |
    grep -v -- -security | head -1)
new=$WORK/openssh-newest
rm -rf "$new"
mkdir -p "$new/lists/partial" "$new/archives/partial" "$new/root"
: >"$new/status"  # nothing is installed: all libraries are fetched, too
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${uri:?} sid main" >"$new/sources.list"
apt() {
    apt-get -q -o Dir::State="$new" -o Dir::State::status="$new/status" -o Dir::Cache="$new" \
        -o Dir::Etc::sourcelist="$new/sources.list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=- \
        -o APT::Install-Recommends=false "$@"
}
apt update
apt -y --download-only install openssh-client
for each in "$new"/archives/*.deb; do dpkg-deb -x "$each" "$new/root"; done
loader=$(find "$new/root" -name 'ld-linux*.so.*' | head -1)
libraries=$(dirname "$(find "$new/root/usr/lib" -name 'libcrypto.so.*' | head -1)")
rm -rf "$new/archives" "$new/lists"
mkdir -p "$BIN/openssh-newest.new"
for each in ssh ssh-keygen; do
    printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$loader" "$libraries" "$new/root/usr/bin/$each" \
        >"$BIN/openssh-newest.new/$each"
    chmod +x "$BIN/openssh-newest.new/$each"
done
"$BIN/openssh-newest.new/ssh" -V
mv "$BIN/openssh-newest.new" "$BIN/openssh-newest"

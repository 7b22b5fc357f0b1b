#!/bin/sh
# Run the command that has the name of this file, on the kind of system that the archive was built for.
file=$0
case $file in */*) ;; *) file=./$file ;; esac
while [ -h "$file" ]; do
    target=$(readlink "$file")
    case $target in
        /*) file=$target ;;
        *) file=${file%/*}/$target ;;
    esac
done
name=${file##*/}
system=$(uname -sm)
if [ "$system" != "@SYSTEM@" ]; then
    echo "$name: this archive is for @SYSTEM@, but this host is $system; get the archive for it, or use pip" >&2
    exit 126
fi
if [ ! -e "@LOADER@" ]; then
    echo "$name: this archive needs @LOADER@, which systems with musl do not have; install with pip" >&2
    exit 126
fi
exec "${file%/*}/lib/twisted-exec" "$file" "$@"

"""Files that only their owner can use, and that readers never see half written."""

from __future__ import annotations

import os
import tempfile

from twisted_exec.tls.errors import TLSConfigError


def write_private(path: str, content: bytes) -> None:
    """
    Write a file of mode 0600 so that a reader sees the old content or all of the new.

    :raises TLSConfigError: it cannot be written.
    """
    write_in_order((path, content))


def write_in_order(*files: tuple[str, bytes]) -> None:
    """
    Write files as :func:`write_private` does, one after the other.

    No path is changed before the contents of all files are on disk. After a crash or a power failure,
    a path that is written holds its old content only if the paths behind it do, too.

    :param files: paths and contents.
    :raises TLSConfigError: one cannot be written.
    """
    path, temporaries = "", []
    try:
        try:
            for path, content in files:
                # mkstemp creates the file with mode 0600, whatever the umask.
                descriptor, temporary = tempfile.mkstemp(prefix=".", dir=_directory(path))
                temporaries.append(temporary)
                with open(descriptor, "wb") as stream:
                    stream.write(content)
                    stream.flush()
                    # Without it a power failure could leave the new name with an empty file.
                    os.fsync(stream.fileno())
            for number, (path, _content) in enumerate(files):
                if number:
                    _sync_directory(_directory(files[number - 1][0]))
                os.replace(temporaries[0], path)
                del temporaries[0]
        finally:
            for temporary in temporaries:
                os.unlink(temporary)
    except OSError as problem:
        why = os.strerror(problem.errno or 0)
        raise TLSConfigError(f'cannot write "{path}": {why}') from None


def _directory(path: str) -> str:
    return os.path.dirname(path) or "."


def _sync_directory(path: str) -> None:
    """Put the names of a directory's files on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

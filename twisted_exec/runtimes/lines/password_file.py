"""
Files with the password of a line, for programs that read it themselves.

Passwords are neither in command lines nor in environments, which other users of the host may see.
"""

from __future__ import annotations

import os

from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.tls.files import regular, warn_if_public

MAX_BYTES = 1024

_ASKPASS = """#!/bin/sh
# ssh(1) calls this with a prompt. Only a question for the password that exists is answered.
case $1 in
*[Nn]ew\\ [Pp]assword* | *[Rr]etype*) exit 1 ;;
*[Pp]assword* | *PASSWORD*) exec head -n 1 -- "$TWISTED_EXEC_PASSWORD_FILE" ;;
*) exit 1 ;;
esac
"""


def read_password(path: str) -> bytes:
    """
    Return the first line of a file; log a warning if every user of the host may read the file.

    :raises CannotStart: it cannot be read, or is no password.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        why = error.strerror or "it is not a regular file"
        raise CannotStart("NoPassword", f"{path} cannot be read: {why}") from None
    warn_if_public(path, mode)
    password = content.partition(b"\n")[0].removesuffix(b"\r")
    if not password or len(content) > MAX_BYTES or b"\0" in password:
        raise CannotStart(
            "NoPassword", f"{path} must have the password as its only line, of at most 1 KiB"
        )
    return password


def write_askpass(directory: str) -> str:
    """
    Write the program that tells ssh(1) a password, and return its path.

    :raises CannotStart: it cannot be written.
    """
    path = os.path.join(directory, "ssh-askpass")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(_ASKPASS)
    except OSError as error:
        raise CannotStart("LineFailed", f"{path} cannot be written: {error.strerror}") from None
    return path


def askpass_environment(program: str, path: str) -> dict[str, str]:
    """
    Return the variables by which ssh(1) asks ``program`` for the password in the file ``path``.
    """
    return {
        "SSH_ASKPASS": program,
        "SSH_ASKPASS_REQUIRE": "force",
        "TWISTED_EXEC_PASSWORD_FILE": path,
    }

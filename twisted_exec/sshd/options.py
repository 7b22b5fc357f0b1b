"""
The command line of ``exec-sshd``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

import os

from twisted.python.usage import UsageError

from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption, Required, settings_of
from twisted_exec.ssh.key_exchange import POST_QUANTUM
from twisted_exec.sshd import PROGRAM
from twisted_exec.sshd.settings import Settings

_LOGIN, _HOST = "API server", "Host keys"


class Options(ProgramOptions):
    """Command line of the program."""

    program = PROGRAM
    settings_class = Settings
    more = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig of the door itself, with a client certificate or a token; it may impersonate users.",
            is_path=True,
            required=Required("the kubeconfig of the door"),
            group=_LOGIN,
        ),
        ProgramOption("context", "Context of it; default: the current context.", group=_LOGIN),
        ProgramOption(
            "users",
            "YAML file with the users: authorities of certificates, public keys, what is revoked.",
            is_path=True,
            required=Required("the file with the users"),
            group="Users",
        ),
        ProgramOption(
            "host-key",
            "Private host key, Ed25519 or RSA; may be repeated.",
            os.path.abspath,
            several=True,
            required=Required("a file with a private host key"),
            group=_HOST,
        ),
        ProgramOption(
            "host-certificate",
            "Host certificate of ssh-keygen -s -h for one of the keys; may be repeated.",
            os.path.abspath,
            several=True,
            group=_HOST,
        ),
    )
    group = "Door"
    groups = dict.fromkeys((_LOGIN, _HOST, "Users", "Limits"), ())
    synopsis = "--kubeconfig=FILE --users=FILE --host-key=FILE [options]"
    longdesc = "Opens consoles for stock ssh, as the users whom it knows by their keys."

    def postOptions(self) -> None:
        self.check_required()
        if self["only-post-quantum"] and not POST_QUANTUM:
            raise UsageError(
                "--only-post-quantum needs ML-KEM: install a cryptography that was built with OpenSSL 3.5"
            )

    def settings(self) -> Settings:
        return settings_of(Settings, self)

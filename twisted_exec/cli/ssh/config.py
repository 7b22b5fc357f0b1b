"""
The text of ``kubectl console --ssh-config``: a block for ``~/.ssh/config``.

ssh gives its ``ProxyCommand`` to the user's shell, with the host's name in it; ssh before 9.6 takes
any name.  So the name is in single quotes, and the block is not for names with a character that is
special in them: a quote, or the backslash of fish.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys

from twisted_exec.cli.messages import say
from twisted_exec.cli.ssh.hosts import SUFFIX
from twisted_exec.program.libraries import missing_library
from twisted_exec.ssh.host_keys import HOST, HostKeyError, host_key, user_directory

_PROGRAM = "twisted-exec"

_BLOCK = """\
# The consoles of machines: ssh NAME.{suffix}, or ssh NAME.NAMESPACE.{suffix}.
# Printed by kubectl console --ssh-config. No server is needed: ssh runs the program below, which logs in with
# the kubeconfig. The host must stay in single quotes, and the two last patterns where they are: ssh runs a shell.
Host *.{suffix} "!*'*" "!*\\*"
    ProxyCommand {command} '%h'
    HostKeyAlias {alias}
    HostKeyAlgorithms ssh-ed25519
    UserKnownHostsFile "{known_hosts}"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    SendEnv EXEC_REASON
"""


def run(options: argparse.Namespace) -> int:
    """Print the block; return the exit code."""
    try:
        # The configuration would be of no use without it.
        from twisted_exec.ssh import server  # noqa: F401

        key = host_key(user_directory())
        text = ssh_config(program(), options, key.known_hosts)
    except ModuleNotFoundError as missing:
        say(f"kubectl console --ssh-config {missing_library(missing)}")
        return 1
    except (HostKeyError, ValueError) as problem:
        say(f"kubectl console: {problem}")
        return 1
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def program() -> str:
    """Return the path of ``twisted-exec``: beside the running program, or else in ``PATH``."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), _PROGRAM)
    if os.access(beside, os.X_OK):
        return beside
    return shutil.which(_PROGRAM) or _PROGRAM


def ssh_config(program: str, options: argparse.Namespace, known_hosts: str) -> str:
    """
    Return the block.

    :param program: the path of ``twisted-exec``.
    :param options: ``kubeconfig``, ``context`` and ``namespace`` of the command line.
    :raises ValueError: a value cannot be in such a file; the message is for the user.
    """
    words = [program, "ssh", "proxy"]
    if options.kubeconfig:
        words += ["--kubeconfig", os.path.abspath(options.kubeconfig)]
    if options.context:
        words += ["--context", options.context]
    if options.namespace:
        words += ["--namespace", options.namespace]
    for each in (*words, known_hosts):
        if not each.isprintable():
            raise ValueError(f"{each!r} cannot be in a configuration of ssh")
    if '"' in known_hosts or "\\" in known_hosts or "$" in known_hosts:
        raise ValueError(
            f"ssh cannot read {known_hosts}: set XDG_STATE_HOME to a path without special characters"
        )
    return _BLOCK.format(
        suffix=SUFFIX,
        command=_without_tokens(shlex.join([*words, "--"])),
        alias=HOST,
        known_hosts=_without_tokens(known_hosts),
    )


def _without_tokens(text: str) -> str:
    return text.replace("%", "%%")

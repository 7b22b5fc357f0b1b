"""
The words of remedies for users of ``ssh``.
"""

from __future__ import annotations

from twisted_exec.cli.advice import REASON_COMMAND, Advice
from twisted_exec.cli.ssh.hosts import SUFFIX

REASON = "ssh -o SetEnv=EXEC_REASON=TICKET"
"""Gives the reason of a session, with any configuration of ssh."""


class SSHAdvice(Advice):
    """``ssh NAME.NAMESPACE.console``, by users with a kubeconfig."""

    read_only = "ssh -T"

    def machine_in(self, name: str, namespace: str) -> str:
        return f"ssh {name}.{namespace}.{SUFFIX}"

    def refused(self, message: str) -> str:
        message = message.replace("open it without --force", "open it without the command force")
        return REASON_COMMAND.sub(REASON, message)


SSH_HOSTS = SSHAdvice()

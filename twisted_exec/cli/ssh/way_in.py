"""
The words of remedies for users of ``ssh``.
"""

from __future__ import annotations

import re

from twisted_exec.cli.ssh.hosts import SUFFIX
from twisted_exec.cli.way_in import WayIn

REASON = "ssh -o SetEnv=EXEC_REASON=TICKET"
"""Gives the reason of a session, with any configuration of ssh."""

_REASON = re.compile(
    r"kubectl console (--\S+ )?--reason TICKET -n \S+ [^\s,;]+"
    r"(, or kubectl exec -it -n \S+ \S+ -- console --reason TICKET)?"
)
"""The remedy of API servers for a session that needs a reason."""


class SSHWayIn(WayIn):
    """``ssh NAME.NAMESPACE.console``, by users with a kubeconfig."""

    read_only = "ssh -T"

    def machine_in(self, name: str, namespace: str) -> str:
        return f"ssh {name}.{namespace}.{SUFFIX}"

    def refused(self, message: str) -> str:
        message = message.replace("open it without --force", "open it without the command force")
        return _REASON.sub(REASON, message)


SSH_HOSTS = SSHWayIn()

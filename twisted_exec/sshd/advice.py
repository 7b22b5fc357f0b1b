"""
The words of remedies for users of the door, who may have no kubeconfig.
"""

from __future__ import annotations

import re

from twisted_exec.api.dialects import Dialect
from twisted_exec.cli.ssh.advice import SSHAdvice

_POWER_ON = re.compile(
    r"""kubectl patch \S+ (\S+) -n (\S+) --type=merge -p '\{"spec":\{"power":"On"\}\}'"""
)
"""The remedy of API servers for a machine that is powered off."""


class DoorAdvice(SSHAdvice):
    """
    ``ssh NAMESPACE/NAME@GATE``.

    :param space: of the user's machine; empty for the API server of the door.
    """

    list_namespaces = "ssh GATE list shows the machines of all namespaces"
    list_spaces = "the user name of ssh is NAME, NAMESPACE/NAME or SPACE/NAMESPACE/NAME"
    unreachable = "tell the operator of the ssh door"

    def __init__(self, space: str) -> None:
        self._prefix = f"{space}/" if space else ""

    def not_found(self, namespace: str) -> str:
        return f' in namespace "{namespace}" (the user name of ssh is the machine)'

    def machine_in(self, name: str, namespace: str) -> str:
        return f"ssh {self._prefix}{namespace}/{name}@GATE"

    def list_machines(self, dialect: Dialect, namespace: str) -> str:
        return f"ssh GATE list {self._prefix}{namespace} shows the machines there"

    def power_on(self, dialect: Dialect, name: str, namespace: str) -> str:
        return f"{self.machine_in(name, namespace)} power on"

    def refused(self, message: str) -> str:
        def command(found: re.Match[str]) -> str:
            return f"{self.machine_in(found[1], found[2])} power on"

        return _POWER_ON.sub(command, super().refused(message))

    def doctor(self, name: str, namespace: str) -> str:
        return ""

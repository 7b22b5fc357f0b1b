"""
The words of remedies, for the programs that users have: ``kubectl`` with a kubeconfig, or ``ssh``.
"""

from __future__ import annotations

import re

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.obstacles import doctor_advice

REASON_COMMAND = re.compile(
    r"kubectl console (--\S+ )?--reason TICKET -n \S+ [^\s,;]+"
    r"(, or kubectl exec -it -n \S+ \S+ -- console --reason TICKET)?"
)
"""The remedy of API servers for a session that needs a reason."""


class Advice:
    """
    How a user reaches machines: with ``kubectl`` and ``twisted-exec``.

    :ivar list_namespaces: how to see which namespaces there are.
    :ivar list_spaces: how to see which Spaces there are.
    :ivar read_only: opens a console without typing.
    :ivar unreachable: what to do if the API server cannot be reached; empty for what depends on the obstacle.
    """

    list_namespaces = "kubectl get namespaces lists the namespaces"
    list_spaces = "kubectl get spaces -A lists all spaces"
    read_only = "--read-only"
    unreachable = ""

    def not_found(self, namespace: str) -> str:
        """Return where a machine does not exist, behind ``not found``."""
        return f' in namespace "{namespace}"'

    def machine_in(self, name: str, namespace: str) -> str:
        """Return how to open a machine of another namespace."""
        return f"use -n {namespace}"

    def list_machines(self, dialect: Dialect, namespace: str) -> str:
        """Return how to see the machines of a namespace."""
        return (
            f"kubectl get {dialect.workload.plural} -n {namespace} lists the {dialect.noun}s there"
        )

    def power_on(self, dialect: Dialect, name: str, namespace: str) -> str:
        """Return the command that powers a machine on."""
        patch = """-p '{"spec":{"power":"On"}}'"""
        return f"kubectl patch {dialect.noun} {name} -n {namespace} --type=merge {patch}"

    def doctor(self, name: str, namespace: str) -> str:
        """Return the next step for a machine whose console does not open."""
        return doctor_advice(name, namespace)

    def refused(self, message: str) -> str:
        """Return a refusal of the server, whose remedies name options of ``kubectl console``."""
        return message


KUBECTL = Advice()

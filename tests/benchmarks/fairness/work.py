"""
What an attack is made of: the way to a chain, and what has been done.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.console import connect


@dataclass(frozen=True)
class Access:
    """
    Address and credentials of an API server.

    :param users: certificate and key by user.
    :param ssh_port: of the ssh door; 0 without one.
    :param ssh_key: path of the editor's key for it.
    :param agents: fields of an :class:`~tests.benchmarks.agent_door.AgentAccess`; empty without that door.
    """

    port: int
    ca: str
    users: dict[str, tuple[str, str]]
    seconds: float
    ssh_port: int = 0
    ssh_key: str = ""
    agents: dict[str, Any] = field(default_factory=dict)

    def connect(self, user: str = "") -> ssl.SSLSocket:
        """Connect as a user, or without a client certificate."""
        tls = ssl.create_default_context(cafile=self.ca)
        if user:
            tls.load_cert_chain(*self.users[user])
        return connect(self.port, tls)


@dataclass
class Done:
    """:ivar refusals: by the code, or by how the connection ended."""

    sent: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)


Work = Callable[[Access, Done, float], None]
"""Works on one connection after another until a time; called in a thread."""

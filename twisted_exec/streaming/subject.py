"""The facts of a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """Facts of one session for audit, metrics and messages."""

    session: str
    """The session's id, usually the same on every hop (header ``Audit-Id``)."""
    user: str = ""
    namespace: str = ""
    machine: str = ""
    uid: str = ""
    pool: str = ""
    resource: str = ""
    """The qualified resource, such as ``machines.compute.ironcore.dev``."""
    noun: str = "machine"
    """The word for the object in messages."""
    subresource: str = "exec"
    """Such as ``exec`` for a machine's console, ``log`` for its output."""
    caller: str = ""
    """Acts for ``user``; empty without one."""
    agent: str = ""
    """The client's ``User-Agent``, unverified."""
    address: str = ""
    """The host that the request comes from."""
    reason: str = ""
    """The reason that the user declares, see :mod:`twisted_exec.api.declared_reasons`."""
    extra: str = ""
    """
    What ``caller`` says about ``user`` beside name and groups, such as the key of a login by ssh: as in a query,
    ``key=value&key=value``.
    """
    recording: str = ""
    """The name of the recording of the session; empty on the poollet and the runtime."""
    recording_uid: str = ""
    """The UID of that recording."""

    def get(self, fact: str) -> str:
        """Return a fact by its name, for the audit record."""
        return str(getattr(self, fact, ""))

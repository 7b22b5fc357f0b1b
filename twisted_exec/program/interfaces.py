"""
Interfaces of audit.
"""

from __future__ import annotations

from typing import Any

from zope.interface import Interface


class IAuditSink(Interface):
    """A destination of audit records."""

    def record(event: dict[str, Any]) -> None:
        """
        Write one record.

        :param event: JSON-ready.  Keys: ``time`` (RFC 3339, UTC), ``hop``
            (``apiserver``, ``poollet``, ``runtime``), ``event`` (``start`` or
            ``end``), ``session``, ``user``, ``namespace``, ``machine``, ``uid``,
            ``pool``, ``caller``, ``address``, ``declared_reason``; an end also ``bytes_to_machine``,
            ``bytes_to_user``, ``seconds``, ``reason`` and, for a refusal, ``code``.
        """

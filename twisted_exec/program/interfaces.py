"""
The interface of destinations for audit records.
"""

from __future__ import annotations

from typing import Any

from zope.interface import Interface


class IAuditSink(Interface):
    """A destination of audit records."""

    def record(event: dict[str, Any]) -> None:
        """
        Write one record.

        :param event: JSON-ready, with the keys ``time`` (RFC 3339, UTC), ``hop`` (such as
            ``apiserver``) and ``event`` (such as ``start`` and ``end`` of a session).
        """

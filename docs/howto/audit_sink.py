from collections.abc import Mapping
from typing import Any

from zope.interface import implementer

from twisted_exec.interfaces import IAuditSink


@implementer(IAuditSink)
class Recent:
    """The records of the last thousand sessions, for a page that shows them."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []

    def record(self, event: Mapping[str, Any]) -> None:
        self.records = [*self.records[-1999:], event]

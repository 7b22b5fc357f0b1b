"""
A reader of a text that goes on, as our own hops read it.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.streaming.http.upgrade_client import (
    AskingFactory,
    UpgradeRequest,
    ask,
    connect_first,
)
from twisted_exec.streaming.text.download import DOWNLOADS, Download

reactor: Any = _reactor


class Reader:
    """
    Keeps everything.

    :ivar complete: whether it ended as it should; ``None`` while it goes on.
    """

    download: Download

    def __init__(self) -> None:
        self.got = bytearray()
        self.complete: bool | None = None

    def data(self, data: bytes) -> None:
        self.got += data

    def ended(self, complete: bool) -> None:
        self.complete = complete


async def read(
    endpoint: IStreamClientEndpoint, head: UpgradeRequest, factory: AskingFactory = DOWNLOADS
) -> Reader:
    """
    Ask; the head has come.

    :param factory: decides which responses are texts.
    :raises UpgradeRefused: the server says no.
    """
    _, connection = await connect_first(
        [("the server", endpoint)], clock=reactor, timeout_seconds=600, factory=factory
    )
    reader = Reader()
    reader.download = await ask(connection, head, clock=reactor, timeout_seconds=600)
    reader.download.deliver(reader.data, reader.ended)
    return reader

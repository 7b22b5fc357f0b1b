"""
Stands in a TLS connection, and keeps what goes by.

It shows one certificate to whoever connects, and another to whom it connects; both ends are ours to
configure, so that neither notices.  HTTP/1.1 is all that is spoken through it: it offers no ALPN.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from twisted_exec.tls.pki.directory import Pair

KEPT_BYTES = 16384
"""Of each direction of a connection."""


@dataclass
class Exchange:
    """The first bytes of a connection: the request and the data behind it, and the answer."""

    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)

    @property
    def request(self) -> bytes:
        """Its first line."""
        return bytes(self.sent).partition(b"\r\n")[0]


class Recorder:
    """
    Listens on ``port``, and makes a connection to another port for each client.

    :param shown: its serving certificate.
    :param identity: the client certificate that it shows to the other.
    :param ca: by whom the other's serving certificate is signed.
    :ivar exchanges: one for each connection, in their order.
    """

    def __init__(self, to_port: int, shown: Pair, identity: Pair, ca: str) -> None:
        self.exchanges: list[Exchange] = []
        # asyncio refers to a reader, and so to the task that awaits it, only weakly.
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._to_port = to_port
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.load_cert_chain(shown.certificate, shown.key)
        self._client = ssl.create_default_context(cafile=ca)
        self._client.load_cert_chain(identity.certificate, identity.key)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        """Close all connections and end the loop."""
        asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        exchange = Exchange()
        self.exchanges.append(exchange)
        other, to_other = await asyncio.open_connection(
            "127.0.0.1", self._to_port, ssl=self._client, server_hostname="127.0.0.1"
        )
        # Not raised again: asyncio would tell of an end of ours as of a fault.
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                _copy(reader, to_other, exchange.sent), _copy(other, writer, exchange.received)
            )


async def cancel_all() -> None:
    """Cancel all other tasks of the loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    """To the end; TLS has no half-close in Python, so that one end is both."""
    try:
        while data := await reader.read(65536):
            kept += data[: max(0, KEPT_BYTES - len(kept))]
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()

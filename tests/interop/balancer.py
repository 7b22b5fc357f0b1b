"""
A load balancer for several replicas: connections go to ready replicas only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress

from tests.interop.recorder import cancel_all


class Balancer:
    """
    Listens on ``port``.

    :ivar replicas: for each name its port, and that of its probes; may be changed at any time.
    :ivar served: by whom each connection was, in their order.
    """

    def __init__(self) -> None:
        self.replicas: Mapping[str, tuple[int, int]] = {}
        self.served: list[str] = []
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        """Close all connections and end the loop."""
        asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for name, (port, probes) in self._in_turn():
            if await _is_ready(probes):
                self.served.append(name)
                other, to_other = await asyncio.open_connection("127.0.0.1", port)
                with suppress(asyncio.CancelledError):
                    await asyncio.gather(_copy(reader, to_other), _copy(other, writer))
                return
        writer.close()

    def _in_turn(self) -> list[tuple[str, tuple[int, int]]]:
        """Return the replicas, with the last used at the end."""
        last = self.served[-1:]
        return sorted(self.replicas.items(), key=lambda one: one[0] in last)


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
    answer = await reader.readline()
    writer.close()
    return b" 200 " in answer


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the input, and pass the end on."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()

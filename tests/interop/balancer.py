"""
A load balancer for several replicas: a connection goes to the ready replica with the fewest.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
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
        self._open: Counter[str] = Counter()
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
        tried: set[str] = set()
        while names := [name for name in self.replicas if name not in tried]:
            name = min(names, key=self._open.__getitem__)
            tried.add(name)
            # Counted before anything is awaited: another connection may come meanwhile.
            self._open[name] += 1
            try:
                if await self._serve(name, reader, writer):
                    return
            finally:
                self._open[name] -= 1
        writer.close()

    async def _serve(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Carry a connection to its end; return false if the replica is not ready."""
        port, probes = self.replicas[name]
        if not await _is_ready(probes):
            return False
        self.served.append(name)
        other, to_other = await asyncio.open_connection("127.0.0.1", port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, to_other), _copy(other, writer))
        return True


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

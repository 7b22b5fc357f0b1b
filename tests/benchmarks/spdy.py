"""
The SPDY codec alone: data through both of its directions, in one process,
beside the copying that nobody could do without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from twisted_exec.wire.spdy import Connection, DataReceived, StreamOpened

TOTAL = 64 << 20
CHUNK = 64 << 10
"""As a transport reads and a console writes."""


def _opened() -> tuple[Connection, Connection, int]:
    """A client's end and a server's, and a stream of theirs."""
    client = Connection(client=True, max_streams=0)
    server = Connection(client=False, max_streams=1)
    stream_id = client.open([(b"streamtype", b"stdin")])
    server.feed(client.data_to_send())
    assert isinstance(server.next_event(), StreamOpened)
    server.accept(stream_id)
    client.feed(server.data_to_send())
    client.next_event()
    return client, server, stream_id


def written() -> list[bytes]:
    """All of it as frames, in the portions that a transport would read."""
    client, _, stream_id = _opened()
    chunk = bytes(CHUNK)
    sent = []
    for _ in range(TOTAL // CHUNK):
        client.send(stream_id, chunk)
        sent.append(client.data_to_send())
    whole = b"".join(sent)
    return [whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK)]


def read(portions: list[bytes]) -> None:
    """All of it as data again."""
    _, server, _ = _opened()
    count = 0
    for portion in portions:
        server.feed(portion)
        while (event := server.next_event()) is not None:
            assert isinstance(event, DataReceived)
            count += len(event.data)
    assert count == TOTAL


def keystrokes(count: int) -> None:
    """As many frames of one byte."""
    client, server, stream_id = _opened()
    for _ in range(count):
        client.send(stream_id, b"x")
        server.feed(client.data_to_send())
        while server.next_event() is not None:
            pass


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(scratch: Path) -> None:
    portions = written()
    copied = _seconds(lambda: [bytes(bytearray(portion)) for portion in portions])
    print(f"SPDY codec, {TOTAL >> 20} MiB of data:")
    for what, seconds in (
        ("write (frames of 32 KiB)", _seconds(written)),
        ("read (portions of 64 KiB)", _seconds(lambda: read(portions))),
        ("copying it twice, for comparison", copied),
    ):
        print(f"  {what:34} {TOTAL / seconds / 1e6:8.0f} MB/s  {seconds / copied:5.1f} x copying")
    count = 50_000
    each = _seconds(lambda: keystrokes(count)) / count
    print(f"  {'a keystroke, written and read':34} {each * 1e6:8.1f} us")

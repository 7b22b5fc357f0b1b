"""
The SPDY codec alone: data through both of its directions, in one process,
beside the copying that any implementation needs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from twisted_exec.wire.spdy_connection import DataReceived, SPDYConnection, StreamOpened

TOTAL = 64 << 20
CHUNK = 64 << 10
"""As a transport reads and a console writes."""


def _opened() -> tuple[SPDYConnection, SPDYConnection, int]:
    """A client's end and a server's, and a stream of theirs."""
    client = SPDYConnection(client=True, max_streams=0)
    server = SPDYConnection(client=False, max_streams=1)
    stream_id = client.open([(b"streamtype", b"stdin")])
    server.feed(client.data_to_send())
    assert isinstance(server.next_event(), StreamOpened)
    server.accept(stream_id)
    client.feed(server.data_to_send())
    client.next_event()
    return client, server, stream_id


def write() -> Iterator[bytes]:
    """All of it as frames."""
    client, _, stream_id = _opened()
    chunk = bytes(CHUNK)
    for _ in range(TOTAL // CHUNK):
        client.send(stream_id, chunk)
        yield client.data_to_send()


def portions() -> list[bytes]:
    """The same, as a transport would read it."""
    whole = b"".join(write())
    return [whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK)]


def read(sent: list[bytes]) -> None:
    """All of it as data again."""
    _, server, _ = _opened()
    count = 0
    for portion in sent:
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
    # Of this process: there is nothing to wait for.
    start = time.process_time()
    work()
    return time.process_time() - start


def main(scratch: Path) -> None:
    sent = portions()
    copied = _seconds(lambda: deque((bytes(bytearray(one)) for one in sent), maxlen=0))
    print(f"SPDY codec, {TOTAL >> 20} MiB of data:")
    for what, seconds in (
        ("write (frames of 32 KiB)", _seconds(lambda: deque(write(), maxlen=0))),
        ("read (portions of 64 KiB)", _seconds(lambda: read(sent))),
        ("copying it twice, for comparison", copied),
    ):
        print(f"  {what:34} {TOTAL / seconds / 1e6:8.0f} MB/s  {seconds / copied:5.1f} x copying")
    count = 50_000
    each = _seconds(lambda: keystrokes(count)) / count
    print(f"  {'a keystroke, written and read':34} {each * 1e6:8.1f} us")

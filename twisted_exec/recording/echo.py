"""Typed input that a console has echoed, which recordings may show; a password is not echoed."""

from __future__ import annotations

from collections import deque

ECHO_SECONDS = 2.0
"""Output that follows input later than this is no echo."""
_MOST_WAITING = 4096
_NEWLINES = (b"\r\n", b"\r", b"\n")
_ERASURES = (b"\b \b", b"\b\x1b[K")


class EchoedInput:
    """
    The typed bytes of one console that were not echoed yet.

    Typed bytes count as echoed only if the next output is exactly their echo. The first difference
    forgets everything that waits: a password, whose echo is off, is followed by output that the
    user did not type.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, str, float]] = deque()
        self._rest = b""

    @property
    def is_expected(self) -> bool:
        return bool(self._waiting)

    def typed(self, session: str, data: bytes, now: float) -> None:
        """
        Take note of input.

        :param now: in seconds.
        """
        self._waiting.extend((byte, session, now) for byte in data[-_MOST_WAITING:])
        while len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()

    def forget(self) -> None:
        """Count no earlier input as echoed: some output is missing."""
        self._waiting.clear()
        self._rest = b""

    def printed(self, data: bytes, now: float) -> list[tuple[str, bytes]]:
        """
        Take note of all output since the previous call; return the input that it echoes, by
        session.
        """
        while self._waiting and now - self._waiting[0][2] > ECHO_SECONDS:
            self._waiting.popleft()
        echoes: list[tuple[str, bytearray]] = []
        data, self._rest = self._rest + data, b""
        while self._waiting and data:
            byte, session, _ = self._waiting[0]
            length = _echoed(byte, data)
            if length < 0:
                self._rest = data  # an echo of several bytes that is not complete yet
                break
            if not length:
                self._waiting.clear()
                break
            self._waiting.popleft()
            data = data[length:]
            if not echoes or echoes[-1][0] != session:
                echoes.append((session, bytearray()))
            echoes[-1][1].append(byte)
        return [(session, bytes(typed)) for session, typed in echoes]


def _echoed(byte: int, data: bytes) -> int:
    """Return how many bytes of output echo an input byte: 0 if none, -1 if more is to come."""
    forms: tuple[bytes, ...] = (bytes((byte,)),)
    if byte in b"\r\n":
        forms = _NEWLINES
    elif byte in b"\b\x7f":
        forms = (*_ERASURES, b"^?", b"^H")
    elif byte < 32:
        forms = (bytes((ord("^"), byte ^ 0x40)), *forms)
    for form in forms:
        if data.startswith(form):
            return len(form)
    if any(form.startswith(data) for form in forms):
        return -1
    return 0

"""
Messages between the keeper and its clients, sans I/O.

A connection is a UNIX socket of type ``SOCK_SEQPACKET``, so each message has its own boundary.  A
message has at most 128 KiB: fields, separated by NUL bytes, and after two NUL bytes a body.  The
first field is the kind of the message, the others are ``key=value``.  The keeper greets with ``hello``
and its version; then each valid request gets one answer, ``ok`` or ``error``, in order.  In between
the keeper sends ``exited`` about holdings of this client.

================  ====================================================  ==============================
request           fields                                                fields of the answer
================  ====================================================  ==============================
``spawn``         name, keep, path, arg..., env..., cwd, and optional   pid, start; with the master
                  uid, gid, group..., tty-gid, rows, columns, raw,
                  soft, hard
``take``          name, keep                                            pid, start, status, and the
                                                                        body; with the descriptor
``release``       name; body: input that the terminal has not accepted
``forget``        name
``list``          after                                                 name, pid and start of up to
                                                                        100 holdings, sorted
``leave``                                                               none: the client will disconnect
================  ====================================================  ==============================

``pid`` and ``start`` identify a command as in ``/proc``.  ``status`` is that of wait(2), and is missing while the command runs.

The keeper imports this module without the rest of the project.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes 1 MiB
if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
MAX_MESSAGE_BYTES = 128 << 10
MAX_BODY_BYTES = 112 << 10
MAX_NAME_BYTES = 255
LISTED = 100


class BadMessage(Exception):
    """The peer does not follow the protocol."""


class Message:
    """
    One message.

    :param kind: such as ``spawn``.
    """

    def __init__(
        self, kind: str, fields: Iterable[tuple[str, bytes | str | int]] = (), body: bytes = b""
    ) -> None:
        self.kind = kind
        self.fields = [
            (key, value if isinstance(value, bytes) else str(value).encode())
            for key, value in fields
        ]
        self.body = body

    def encode(self) -> bytes:
        """:raises ValueError: a value contains a NUL byte, or the message is too long."""
        words = [
            self.kind.encode(),
            *(b"%s=%s" % (key.encode(), value) for key, value in self.fields),
        ]
        if any(b"\0" in word for word in words):
            raise ValueError("a NUL byte cannot be part of a command, a variable or a path")
        data = b"\0".join(words)
        if self.body:
            data += b"\0\0" + self.body
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"it has {len(data)} bytes; {MAX_MESSAGE_BYTES} are possible")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Message:
        """
        :raises BadMessage: the data is not valid.
        """
        head, _, body = data.partition(b"\0\0")
        kind, *words = head.split(b"\0")
        fields = []
        for word in words:
            key, is_field, value = word.partition(b"=")
            if not is_field:
                raise BadMessage("a field has no value")
            fields.append((key.decode("ascii", "replace"), value))
        return cls(kind.decode("ascii", "replace"), fields, body)

    def all(self, key: str) -> list[bytes]:
        return [value for name, value in self.fields if name == key]

    def text(self, key: str, default: bytes | None = None) -> bytes:
        """
        Return the value of a key.

        :raises BadMessage: there is none, and no default.
        """
        for name, value in self.fields:
            if name == key:
                return value
        if default is None:
            raise BadMessage(f"{key} is missing")
        return default

    def number(self, key: str, default: int | None = None) -> int:
        """
        Return the value of a key as a number.

        :raises BadMessage: there is none, and no default; or it is no number.
        """
        value = self.text(key, b"" if default is not None else None)
        if not value and default is not None:
            return default
        try:
            return int(value)
        except ValueError:
            raise BadMessage(f"{key} is no number") from None

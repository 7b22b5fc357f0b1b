"""Client side of SOCKS version 5, sans I/O (RFC 1928; passwords: RFC 1929)."""

from __future__ import annotations

import ipaddress
from enum import Enum

from twisted_exec.wire.errors import RemoteProtocolError

_VERSION = 5
_NO_AUTHENTICATION, _PASSWORD, _NONE_ACCEPTABLE = 0, 2, 0xFF
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4

_REPLIES = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "the TTL expired",
    7: "command not supported",
    8: "address type not supported",
}


class Socks5Refused(Exception):
    """The proxy follows the protocol and refuses."""


class _Step(Enum):
    METHOD = 1
    PASSWORD = 2
    REPLY = 3
    DONE = 4


class Socks5Client:
    """
    One connection request.

    Send :meth:`greeting`, then everything that :meth:`receive` returns, until :attr:`done`.

    :param host: name or address, without brackets.
    :param username: at most 255 bytes, as is ``password``; empty for none.
    :raises ValueError: a value is too long for the protocol, or the host is not a valid name.
    """

    def __init__(self, host: str, port: int, username: str = "", password: str = "") -> None:
        self._target = _address(host) + port.to_bytes(2, "big")
        self._login = b""
        if username or password:
            # version of the subnegotiation
            self._login = b"\1" + _with_length(username.encode()) + _with_length(password.encode())
        self._step = _Step.METHOD
        self._received = b""

    @property
    def done(self) -> bool:
        return self._step is _Step.DONE

    @property
    def trailing(self) -> bytes:
        """The bytes after the last answer, which come from the target."""
        return self._received

    def greeting(self) -> bytes:
        methods = bytes([_NO_AUTHENTICATION, _PASSWORD] if self._login else [_NO_AUTHENTICATION])
        # RFC 1928 §3.
        return bytes([_VERSION]) + _with_length(methods)

    def receive(self, data: bytes) -> bytes:
        """
        Take received bytes in any chunks.

        :return: bytes to send, often none.
        :raises Socks5Refused: the proxy refuses.
        :raises RemoteProtocolError: the peer does not speak SOCKS 5.
        """
        self._received += data
        answer = b""
        while not self.done and (size := self._size()) and len(self._received) >= size:
            message, self._received = self._received[:size], self._received[size:]
            answer += self._next(message)
        return answer

    def _size(self) -> int:
        """Return the length of the message under way; 0 while it is unknown."""
        # RFC 1929 §2: the answer to a password has the version of the subnegotiation, 1.
        if self._received[:1] not in (b"", bytes([1 if self._step is _Step.PASSWORD else 5])):
            raise RemoteProtocolError("the proxy does not speak SOCKS version 5")
        if self._step is not _Step.REPLY:
            return 2
        if len(self._received) >= 2 and self._received[1]:
            return 2  # proxies may omit the rest of a refusal
        if len(self._received) < 5:
            return 0
        # VER, REP, RSV, ATYP and the port are 6 bytes around the address (RFC 1928 §6).
        sizes = {_IPV4: 4, _IPV6: 16, _NAME: 1 + self._received[4]}
        try:
            return 6 + sizes[self._received[3]]
        except KeyError:
            raise RemoteProtocolError("the proxy answers with an unknown address type") from None

    def _next(self, message: bytes) -> bytes:
        code = message[1]
        if self._step is _Step.METHOD:
            return self._method(code)
        if self._step is _Step.PASSWORD:
            if code:
                raise Socks5Refused("the proxy does not accept the user name and password")
            return self._request()
        if code:
            raise Socks5Refused(f"the proxy says: {_REPLIES.get(code, f'failure {code}')}")
        self._step = _Step.DONE
        return b""

    def _method(self, method: int) -> bytes:
        if method == _PASSWORD and self._login:
            self._step = _Step.PASSWORD
            return self._login
        if method == _NO_AUTHENTICATION:
            return self._request()
        if method == _NONE_ACCEPTABLE:
            wants = "another authentication method" if self._login else "a user name and password"
            raise Socks5Refused(f"the proxy wants {wants}")
        raise RemoteProtocolError("the proxy chose an authentication method that was not offered")

    def _request(self) -> bytes:
        self._step = _Step.REPLY
        # The third byte is reserved (RFC 1928 §4).
        return bytes([_VERSION, _CONNECT, 0]) + self._target


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # The proxy resolves names, since it is often the only host that can.
        return bytes([_NAME]) + _with_length(host.encode("ascii" if host.isascii() else "idna"))
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _with_length(data: bytes) -> bytes:
    if len(data) > 255:
        raise ValueError("SOCKS carries names and passwords of 255 bytes at most")
    return bytes([len(data)]) + data

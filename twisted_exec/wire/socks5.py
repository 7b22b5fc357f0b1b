"""
The client's half of SOCKS version 5, without I/O (RFC 1928; passwords RFC 1929).

Three questions and answers before the proxy is out of the way: which way of
authenticating, the password if that was the way, and where to connect to.  Names are
resolved by the proxy, which is often the only one who can.
"""

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
    6: "it took too long",
    7: "it does not know the command",
    8: "it does not know the kind of address",
}


class SocksRefused(Exception):
    """The proxy keeps the protocol, and will not.  The message says why."""


class _Step(Enum):
    METHOD = 1
    PASSWORD = 2
    REPLY = 3
    DONE = 4


class Socks5Client:
    """
    Asks for one connection.

    Send :meth:`greeting`, then whatever :meth:`receive` returns, until :attr:`done`;
    what the other end has already said is then in :attr:`trailing`.

    :param host: name or address, without brackets.
    :param username: 255 bytes at most, as is ``password``; empty for none.
    :raises ValueError: something is too long for the protocol.
    """

    def __init__(self, host: str, port: int, username: str = "", password: str = "") -> None:
        self._target = _address(host) + port.to_bytes(2, "big")
        self._login = b""
        if username or password:
            self._login = b"\1" + _counted(username.encode()) + _counted(password.encode())
        self._step = _Step.METHOD
        self._received = b""

    @property
    def done(self) -> bool:
        """The connection is there."""
        return self._step is _Step.DONE

    @property
    def trailing(self) -> bytes:
        """What came behind the last answer: no longer the proxy's words."""
        return self._received

    def greeting(self) -> bytes:
        """The first bytes to send."""
        methods = bytes([_NO_AUTHENTICATION, _PASSWORD] if self._login else [_NO_AUTHENTICATION])
        return bytes([_VERSION]) + _counted(methods)

    def receive(self, data: bytes) -> bytes:
        """
        Take what the proxy says, in any split.

        :return: what to send now, often nothing.
        :raises SocksRefused: it will not.
        :raises RemoteProtocolError: it does not speak SOCKS 5.
        """
        self._received += data
        answer = b""
        while not self.done and (size := self._size()) and len(self._received) >= size:
            message, self._received = self._received[:size], self._received[size:]
            answer += self._next(message)
        return answer

    def _size(self) -> int:
        """How long the message under way is; 0 while that is not known."""
        if self._received[:1] not in (b"", bytes([1 if self._step is _Step.PASSWORD else 5])):
            raise RemoteProtocolError("the proxy does not speak SOCKS version 5")
        if self._step is not _Step.REPLY:
            return 2
        if len(self._received) >= 2 and self._received[1]:
            return 2  # proxies may leave out the rest of a refusal
        if len(self._received) < 5:
            return 0
        sizes = {_IPV4: 4, _IPV6: 16, _NAME: 1 + self._received[4]}
        try:
            return 6 + sizes[self._received[3]]
        except KeyError:
            raise RemoteProtocolError("the proxy tells an unknown kind of address") from None

    def _next(self, message: bytes) -> bytes:
        told = message[1]
        if self._step is _Step.METHOD:
            return self._method(told)
        if self._step is _Step.PASSWORD:
            if told:
                raise SocksRefused("the proxy does not accept the user name and password")
            return self._request()
        if told:
            raise SocksRefused(f"the proxy says: {_REPLIES.get(told, f'failure {told}')}")
        self._step = _Step.DONE
        return b""

    def _method(self, method: int) -> bytes:
        if method == _PASSWORD and self._login:
            self._step = _Step.PASSWORD
            return self._login
        if method == _NO_AUTHENTICATION:
            return self._request()
        if method == _NONE_ACCEPTABLE:
            wants = "another way of authenticating" if self._login else "a user name and password"
            raise SocksRefused(f"the proxy wants {wants}")
        raise RemoteProtocolError("the proxy chose a way of authenticating that was not offered")

    def _request(self) -> bytes:
        self._step = _Step.REPLY
        return bytes([_VERSION, _CONNECT, 0]) + self._target


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes([_NAME]) + _counted(host.encode("ascii" if host.isascii() else "idna"))
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _counted(data: bytes) -> bytes:
    if len(data) > 255:
        raise ValueError("SOCKS carries names and passwords of 255 bytes at most")
    return bytes([len(data)]) + data

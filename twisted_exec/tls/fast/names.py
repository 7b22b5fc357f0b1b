"""
All private names of libraries that the project uses.

If a name is missing at the first use of a part, the part runs the library's own way, with a
warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from twisted.logger import Logger


@dataclass(frozen=True)
class Part:
    """
    A part that a missing name switches off.

    :ivar otherwise: the libraries' own way.
    :ivar price: what a program has less, or needs more, without the part.
    """

    otherwise: str
    price: str


PARTS = {
    "loop": Part("Twisted's own loop", "1.3 times the CPU time for a key"),
    "transport": Part(
        "Twisted's own sockets, without turns and keep-alive, and TLS above them",
        "2.5 times the CPU time for a key, 1.9 times for a gigabyte",
    ),
    "descriptor": Part(
        "TLS in memory above a socket",
        "1.6 times the CPU time for a key, 1.4 times for a gigabyte",
    ),
    "records": Part(
        "Twisted's own TLS, without turns",
        "1.08 times the CPU time for a key, above UNIX sockets and tunnels",
    ),
    "resumption": Part(
        "a full handshake for each connection", "1.05 times the CPU time for an opening"
    ),
    "refusals": Part(
        "twisted.web's own answer to malformed requests", "no Status, and perhaps a reset"
    ),
}


@dataclass(frozen=True)
class PrivateName:
    """
    A name that its library does not promise to keep.

    :ivar reason: why no public name serves.
    :ivar ticket: address where the library discusses a public one.
    """

    library: str
    owner: str
    name: str
    parts: tuple[str, ...]
    reason: str
    ticket: str = ""


def _of(
    library: str, owner: str, parts: tuple[str, ...], ticket: str, **reasons: str
) -> tuple[PrivateName, ...]:
    return tuple(
        PrivateName(library, owner, name, parts, reason, ticket) for name, reason in reasons.items()
    )


_TWISTED = "https://github.com/twisted/twisted/issues"
_PYOPENSSL = "https://github.com/pyca/pyopenssl"

NAMES = (
    *_of(
        "Twisted",
        "EPollReactor",
        ("loop",),
        f"{_TWISTED}/2534",
        _poller="asks the kernel for all events, and handles a part",
        _selectables="finds the object of an event",
        _doReadOrWrite="handles the events that are neither a read nor a write alone",
        _disconnectSelectable="ends the connection of a read or write that failed",
        _started="ends the loop",
        _justStopped="a stop needs Twisted's handling of timers",
        _newTimedCalls="a new timer needs Twisted's handling of timers",
        _pendingTimedCalls="the next timer ends the wait; Twisted looks at the clock twice",
    ),
    *_of(
        "Twisted",
        "tcp.Connector",
        ("transport",),
        f"{_TWISTED}/5303",
        _makeTransport="makes our client of TCP",
    ),
    *_of(
        "Twisted",
        "unix.Connector",
        ("transport",),
        f"{_TWISTED}/5303",
        _makeTransport="makes our client of UNIX sockets",
    ),
    *_of(
        "Twisted",
        "tcp.BaseClient",
        ("transport",),
        f"{_TWISTED}/5303",
        _connectDone="a connected client begins its handshake",
    ),
    *_of(
        "pyOpenSSL",
        "Connection",
        ("descriptor", "resumption"),
        f"{_PYOPENSSL}/pull/199",
        _ssl="the connection as OpenSSL's functions take it",
    ),
    *_of(
        "pyOpenSSL",
        "Connection",
        ("descriptor",),
        f"{_PYOPENSSL}/pull/199",
        _raise_ssl_error="translates OpenSSL's failures",
    ),
    *_of(
        "cryptography",
        "lib",
        ("descriptor",),
        f"{_PYOPENSSL}/pull/199",
        SSL_read="reads into one buffer for all; recv and recv_into make one for each call",
        SSL_write="writes without three further calls around it",
    ),
    *_of(
        "cryptography",
        "lib",
        ("descriptor",),
        f"{_PYOPENSSL}/pull/753",
        SSL_clear_mode="a read ends after a record without data, of which a peer may send any number",
        SSL_MODE_AUTO_RETRY="the mode that pyOpenSSL sets for each connection",
    ),
    *_of(
        "cryptography",
        "lib",
        ("resumption",),
        f"{_PYOPENSSL}/issues/1275",
        SSL_session_reused="a resumed session has no callback that checks its certificate",
    ),
    *_of(
        "Twisted",
        "TLSMemoryBIOProtocol",
        ("records",),
        f"{_TWISTED}/5095",
        _flushReceiveBIO="delivers a read in one piece",
        _flushSendBIO="sends what a read has made, such as the answer to a close_notify",
        _shutdownTLS="begins the time limit of the peer's close_notify",
        _tlsShutdownFinished="begins the time limit of the rest of our data",
        _write="sends a write in one piece",
    ),
    *_of(
        "Twisted",
        "HTTPChannel",
        ("refusals",),
        "",
        _respondToBadRequestAndDisconnect="is called for what twisted.web cannot parse",
    ),
)

_log = Logger()
_results: dict[str, bool] = {}
_warned: set[PrivateName] = set()


def is_usable(part: str, owners: Mapping[str, object]) -> bool:
    """
    Return whether the names of a part exist, for the rest of the process, and warn if not.

    :param owners: the classes and objects that must have them, by :attr:`PrivateName.owner`.
    """
    if part not in _results:
        missing = [
            each
            for each in NAMES
            if part in each.parts and not hasattr(owners.get(each.owner), each.name)
        ]
        _results[part] = not missing
        if not _warned.issuperset(missing):
            _warn([each for each in missing if each not in _warned])
    return _results[part]


def _warn(missing: list[PrivateName]) -> None:
    _warned.update(missing)
    libraries = sorted({each.library for each in missing})
    parts = sorted({part for each in missing for part in each.parts})
    _log.warn(
        "{libraries}: no {names}, so this program uses {otherwise} ({price}); "
        "install an older {older}, or a newer twisted-exec",
        libraries=", ".join(f"{each} {_version(each)}" for each in libraries),
        names=" and no ".join(f"{each.owner}.{each.name}" for each in missing),
        otherwise=" and ".join(PARTS[part].otherwise for part in parts),
        price="; ".join(PARTS[part].price for part in parts),
        older=" and ".join(libraries),
    )


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "of an unknown version"

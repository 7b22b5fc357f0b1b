"""
The limit of a hop in Python: bare TLS on both sides, beside nginx's stream proxy and our relay.

The bare hop has the same Python and OpenSSL as ours, through the same binding (cffi), and epoll; it has no
Twisted, limits, deadlines or turns, and trusts its peers.  A key costs it four calls of the kernel and
direction: ``epoll_wait``, two reads (OpenSSL reads the head of a record alone), and a write.

It is also measured twice in a row, as API server and poollet are, beside two relays of ours.  No hop here
reads HTTP or asks who the user is, so an opening is TLS and sockets alone.

``python -m tests.benchmarks.bare_hop DIRECTORY BACKEND_PORT`` runs the bare hop, and prints its port.
"""

from __future__ import annotations

import select
import socket
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from OpenSSL._util import ffi, lib

from . import load
from .one_hop import (
    Candidate,
    idle_cost,
    keystrokes,
    make_certificates,
    nginx,
    running,
)

ROUNDS = 5
_RECORD_BYTES = 1 << 14


class BareHop:
    """
    Joins every connection to one of its own to the backend.

    :param directory: has the certificates of :func:`~tests.benchmarks.one_hop.make_certificates`.
    """

    def __init__(self, directory: Path, backend_port: int) -> None:
        self._backend_port = backend_port
        self._server, self._client = (SSL.Context(SSL.TLS_METHOD) for _ in range(2))
        for context in (self._server, self._client):
            context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_TICKET)
            context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
            context.set_mode(SSL.MODE_RELEASE_BUFFERS)
        self._server.use_certificate_chain_file(str(directory / "server.crt"))
        self._server.use_privatekey_file(str(directory / "server.key"))
        self._client.load_verify_locations(str(directory / "ca.crt"))
        self._client.set_verify(SSL.VERIFY_PEER)
        self._legs: dict[int, tuple[SSL.Connection, SSL.Connection]] = {}
        self._poller = select.epoll()
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._poller.register(self.listening, select.EPOLLIN)

    def run(self) -> None:
        """Serve until the process ends."""
        wait, buffer = self._poller.poll, ffi.new("char[]", _RECORD_BYTES)
        read, write = lib.SSL_read, lib.SSL_write
        accepting = self.listening.fileno()
        engines: dict[int, tuple[Any, Any]] = {}
        while True:
            for descriptor, _ in wait(-1, 16):
                if descriptor == accepting:
                    self._accept(engines)
                    continue
                pair = engines.get(descriptor)
                if pair is None:  # an event before this one has closed it
                    continue
                source, sink = pair
                count = read(source, buffer, _RECORD_BYTES)  # at most a record, so nothing is left
                if count > 0:
                    write(sink, buffer, count)
                elif lib.SSL_get_error(source, count) != lib.SSL_ERROR_WANT_READ:
                    for each in self._legs[descriptor]:
                        del engines[each.fileno()]
                    for each in self._legs.pop(descriptor):
                        self._legs.pop(each.fileno(), None)
                        each.close()

    def _accept(self, engines: dict[int, tuple[Any, Any]]) -> None:
        """Take a connection; handshakes block, because the load opens one at a time."""
        plain, _ = self.listening.accept()
        user = SSL.Connection(self._server, plain)
        user.set_accept_state()
        onward = SSL.Connection(
            self._client, socket.create_connection(("127.0.0.1", self._backend_port))
        )
        onward.set_tlsext_host_name(b"localhost")
        lib.X509_VERIFY_PARAM_set1_host(lib.SSL_get0_param(onward._ssl), b"localhost", 9)
        onward.set_connect_state()
        for leg in (user, onward):
            leg.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            leg.do_handshake()
            leg.setblocking(False)
            self._legs[leg.fileno()] = (user, onward)
            self._poller.register(leg.fileno(), select.EPOLLIN)
        engines[user.fileno()] = (user._ssl, onward._ssl)
        engines[onward.fileno()] = (onward._ssl, user._ssl)


def report(title: str, candidates: list[Candidate]) -> None:
    """Measure in turn, round after round; print medians and their ratios to the first that relays."""
    keys: dict[str, list[tuple[float, float]]] = {each.name: [] for each in candidates}
    for _ in range(ROUNDS):
        for each in candidates:
            keys[each.name].append(keystrokes(each))
    trips = {name: statistics.median(trip for trip, _ in rows) for name, rows in keys.items()}
    relaying = candidates[1:]  # the first is the direct line
    rows = {
        "CPU us per key": [
            statistics.median(cpu for _, cpu in keys[each.name]) for each in relaying
        ],
        "added round trip, us": [trips[each.name] - trips[candidates[0].name] for each in relaying],
        "CPU ms per session opened": [idle_cost(each)[1] or 0.0 for each in relaying],
    }
    print(f"{title:28}" + "".join(f"{each.name:>22}" for each in relaying))
    for name, values in rows.items():
        cells = (f"{value:>13.1f} ({value / values[0]:.2f}x)" for value in values)
        print(f"{name:28}" + "".join(f"{cell:>22}" for cell in cells))


def main(directory: Path) -> None:
    make_certificates(directory)
    python = (sys.executable, "-m")
    with ExitStack() as stack:

        def hop(module: str, port: int) -> tuple[int, int]:
            words = (*python, f"tests.benchmarks.{module}", str(directory), str(port))
            return stack.enter_context(running(*words))

        _, backend = stack.enter_context(running(*python, "tests.benchmarks.load", str(directory)))

        def candidate(name: str, port: int, *pids: int) -> Candidate:
            return Candidate(name, load.opener(directory, port), pids)

        direct = candidate("direct", backend)
        pid, port = stack.enter_context(nginx(directory, backend))
        one, two = [candidate("nginx stream", port, pid)], []
        for name, module in (("bare", "bare_hop"), ("ours", "relay")):
            second, middle = hop(module, backend)
            first, port = hop(module, middle)
            one.append(candidate(name, middle, second))
            two.append(candidate(name, port, first, second))
        report("one hop", [direct, *one])
        report("two hops", [direct, *two])


if __name__ == "__main__":
    bare = BareHop(Path(sys.argv[1]), int(sys.argv[2]))
    print(bare.listening.getsockname()[1], flush=True)
    bare.run()

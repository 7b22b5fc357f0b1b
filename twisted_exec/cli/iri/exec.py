"""
``twisted-exec iri exec ID``: a console by the exec URL of a runtime.

The rules for the URL are those of a poollet (:mod:`twisted_exec.poollet.consoles.dialling`).
Runtimes of other projects use up a token with any request, even for a protocol that they do not
support, so each protocol needs a URL of its own.
"""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from twisted_exec.cli.console.messages import explain
from twisted_exec.cli.console.options import add_session_options
from twisted_exec.cli.console.program import Program, conclude, open_standard_descriptors
from twisted_exec.cli.iri.options import NoRuntimeError, Place, add_runtime_options, place

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from twisted_exec.iri.client import IRIClient
    from twisted_exec.poollet.consoles.dialling import Dialler
    from twisted_exec.streaming.remotecommand.interfaces import ConsoleStream, ConsoleUser
    from twisted_exec.wire.stream_options import StreamOptions

_TIMEOUT_SECONDS = 30.0
_OF_THE_PROTOCOL = (400, 403, 502)
"""Status codes of other servers for an unsupported protocol, after which the next is tried."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``exec`` to the commands of ``twisted-exec iri``."""
    description = "open the console of a machine in this terminal"
    parser = commands.add_parser(
        "exec", help=description, description=f"{description[0].upper()}{description[1:]}."
    )
    parser.add_argument("name", metavar="ID", help="the runtime's id of the machine")
    add_session_options(parser)
    add_user_option(parser)
    parser.add_argument(
        "--machine-uid",
        metavar="UID",
        default="",
        help="refuse unless the machine's API object has this UID",
    )
    add_runtime_options(parser)
    parser.set_defaults(run=_run)


def add_user_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the user of a token."""
    parser.add_argument(
        "--as-user",
        metavar="NAME",
        help="the user in the runtime's audit records (default: the user who runs this command)",
    )


def _run(options: argparse.Namespace) -> int:
    from twisted_exec.cli.console.session import Outcome

    try:
        open_standard_descriptors()
        where = place(options)
    except NoRuntimeError as problem:
        return conclude(Outcome(1, str(problem)), False)
    return conclude(*_Program(options, where).run())


class _Program(Program):
    """A run with a console from a runtime instead of an API server."""

    def __init__(self, options: argparse.Namespace, where: Place) -> None:
        super().__init__(options)
        self._where = where
        self._client: IRIClient | None = None

    def attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        """See :meth:`Program.attempt`."""
        from twisted.internet.defer import Deferred

        # Unusable arguments must fail the Deferred, too: the terminal is raw by now.
        return Deferred.fromCoroutine(self._attempt(user, reactor, options))

    async def _attempt(
        self, user: ConsoleUser, reactor: Any, stream_options: StreamOptions
    ) -> ConsoleStream:
        from twisted_exec.cli.iri.commands import connect
        from twisted_exec.poollet.consoles.dialling import Dialler

        options, where = self._options, self._where
        self._client = connect(options, where, reactor)
        dialler = Dialler(
            reactor,
            runtime_ca=options.ca_file or "",
            trusted_uids=options.runtime_uid,
            runtime=where.target,
        )
        return await open_console(
            self._client,
            dialler,
            options.name,
            user,
            reactor,
            options=stream_options,
            login=options.as_user or login(),
            machine_uid=options.machine_uid,
        )

    def explain(self, error: BaseException) -> str:
        """See :meth:`Program.explain`."""
        from twisted_exec.api.status import APIError
        from twisted_exec.cli.iri import commands as iri
        from twisted_exec.iri.target import TargetError

        if isinstance(error, APIError) and self._client is not None:
            return iri.explain(error, self._client)
        return str(error) if isinstance(error, TargetError) else explain(error)


def login() -> str:
    """Return the name of the local user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user that has no name on this host
        return f"uid-{os.getuid()}"


def headers_for(login: str, machine_uid: str = "") -> list[tuple[bytes, bytes]]:
    """Return the headers of a request with a token: its user and the machine's UID."""
    from twisted_exec.streaming.interfaces import UID_HEADER, USER_HEADER

    headers = [(USER_HEADER, quote(login, safe="").encode("ascii"))]
    if machine_uid:
        headers.append((UID_HEADER, quote(machine_uid, safe="").encode("ascii")))
    return headers


async def open_console(
    client: IRIClient,
    dialler: Dialler,
    machine_id: str,
    user: ConsoleUser,
    reactor: Any,
    *,
    options: StreamOptions,
    login: str,
    machine_uid: str = "",
    protocols: Sequence[str] | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> ConsoleStream:
    """
    Get the URL of a console from a runtime, and open it.

    :param user: receives the events of the session, ``attached`` first.
    :param login: user name for the Exec and for the request.
    :param protocols: tried in this order, each with a URL of its own; by default all.
    :raises APIError: the runtime's error, or 502 if its URL does not work.
    """
    from twisted_exec.api.status import APIError, BadGateway
    from twisted_exec.iri.protos import machine_pb2 as pb
    from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
    from twisted_exec.streaming.remotecommand.client import ATTEMPTS, connect

    headers = headers_for(login, machine_uid)
    refused: APIError = BadGateway("no protocol to try")
    for protocol in protocols or ATTEMPTS:
        answer = await client.exec(
            pb.ExecRequest(machine_id=machine_id), user=login, machine_uid=machine_uid
        )
        target = dialler.target(answer.url)
        separator = b"&" if b"?" in target.path else b"?"
        path = target.path + separator + options.query()
        try:
            return await connect(
                target.endpoint,
                UpgradeRequest(b"GET", path, target.host, headers),
                user,
                clock=reactor,
                timeout_seconds=timeout_seconds,
                protocols=[protocol],
            )
        except APIError as problem:
            if problem.code not in _OF_THE_PROTOCOL:
                raise
            refused = problem
    raise refused

"""
``twisted-exec iri exec ID``: the console that a runtime's exec URL leads to.

The URL is dialled as a poollet dials it (:mod:`twisted_exec.poollet.consoles.dialling`), by the same
rules.  Runtimes of other makes spend a token on any request, also on one for a protocol that they
do not speak, so every protocol that is tried asks for a URL of its own.
"""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from twisted_exec.cli.console.program import (
    Program,
    add_session_options,
    conclude,
    explain,
    open_standard_descriptors,
)
from twisted_exec.cli.iri.options import NoRuntimeError, Place, add_runtime_options, place

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from twisted_exec.iri.client import IRIClient
    from twisted_exec.poollet.consoles.dialling import Dialler
    from twisted_exec.streaming.remotecommand.client import ConsoleClient, ConsoleUser
    from twisted_exec.wire.stream_options import StreamOptions

_TIMEOUT_SECONDS = 30.0
_OF_THE_PROTOCOL = (400, 403, 502)
"""How servers of other makes refuse a protocol; another may do."""

_USER_HEADER = b"X-Twisted-Exec-User"
_UID_HEADER = b"X-Twisted-Exec-Machine-Uid"


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
        "--machine-uid", metavar="UID", default="", help="of the API object that must be meant"
    )
    add_runtime_options(parser)
    parser.set_defaults(run=_run)


def add_user_option(parser: argparse.ArgumentParser) -> None:
    """For whom a token is asked."""
    parser.add_argument(
        "--as-user",
        metavar="NAME",
        help="for whom, as the runtime is told and records it; else who is logged in",
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
    """A run whose console is asked of a runtime instead of an API server."""

    def __init__(self, options: argparse.Namespace, where: Place) -> None:
        super().__init__(options)
        self._where = where
        self._client: IRIClient | None = None

    def attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleClient]:
        """See :meth:`Program.attempt`."""
        from twisted.internet.defer import Deferred

        # What cannot be used as given fails it like all else: the terminal is raw by now.
        return Deferred.fromCoroutine(self._attempt(user, reactor, options))

    async def _attempt(
        self, user: ConsoleUser, reactor: Any, stream_options: StreamOptions
    ) -> ConsoleClient:
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
    """Who is logged in."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user that has no name on this host
        return f"uid-{os.getuid()}"


def headers_for(login: str, machine_uid: str = "") -> list[tuple[bytes, bytes]]:
    """What a request for a token says of whom it is for."""
    headers = [(_USER_HEADER, quote(login, safe="").encode("ascii"))]
    if machine_uid:
        headers.append((_UID_HEADER, quote(machine_uid, safe="").encode("ascii")))
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
) -> ConsoleClient:
    """
    Ask a runtime for the URL of a console, and open it.

    :param user: told of everything that comes, beginning with ``attached``.
    :param login: for whom, in the Exec and in the request.
    :param protocols: tried in this order, each with a URL of its own; default: all.
    :raises APIError: the runtime's own words, or 502 when its URL leads nowhere.
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

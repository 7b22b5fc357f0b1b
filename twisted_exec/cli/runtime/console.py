"""
``twisted-exec iri exec``: the console of a machine at its runtime.

URLs have the rules of a poollet (:mod:`twisted_exec.poollet.exec_urls`).  Runtimes of other projects
use up a token with any request, so each protocol needs a URL of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.cli.console.main import open_standard_descriptors
from twisted_exec.cli.console.options import add_session_options
from twisted_exec.cli.console.program import ConsoleProgram, conclude
from twisted_exec.cli.console.session import Outcome
from twisted_exec.cli.console.streams import StandardStreams, UserStreams
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.runtime.place import (
    NoRuntimeError,
    RuntimePlace,
    add_runtime_options,
    add_user_option,
    connect,
    explain_refusal,
    headers_for,
    login,
    place,
)
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.target import TargetError
from twisted_exec.poollet.exec_urls import Dialler
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.remotecommand import client as remotecommand
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.stream_options import StreamOptions

_TIMEOUT_SECONDS = 30.0
_PROTOCOL_REFUSAL_CODES = (400, 403, 502)
"""Status codes for an unsupported protocol, after which the next is tried."""


def register_exec(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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


def _run(options: argparse.Namespace) -> int:
    try:
        open_standard_descriptors()
        where = place(options)
    except NoRuntimeError as problem:
        return conclude(Outcome(1, str(problem)), False)
    streams = StandardStreams()
    return conclude(*_Program(options, where, streams).run(streams))


class _Program(ConsoleProgram):
    def __init__(
        self, options: argparse.Namespace, where: RuntimePlace, streams: UserStreams
    ) -> None:
        super().__init__(options, streams)
        self._where = where
        self._client: IRIClient | None = None

    @property
    def step(self) -> str:
        return "waiting for the runtime"

    def attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        # Unusable arguments must fail the Deferred, too: the terminal is raw by now.
        return Deferred.fromCoroutine(self._attempt(user, reactor, options))

    async def _attempt(
        self, user: ConsoleUser, reactor: Any, stream_options: StreamOptions
    ) -> ConsoleStream:

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
        if isinstance(error, APIError) and self._client is not None:
            return explain_refusal(error, self._client)
        return str(error) if isinstance(error, TargetError) else explain(error)


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
    :param protocols: tried in this order; by default all.
    :raises APIError: the runtime refuses, or its URL does not work.
    """
    headers = headers_for(login, machine_uid)
    refused: APIError = BadGateway("no protocol to try")
    for protocol in protocols or remotecommand.ATTEMPTS:
        answer = await client.exec(
            pb.ExecRequest(machine_id=machine_id), user=login, machine_uid=machine_uid
        )
        target = dialler.target(answer.url)
        separator = b"&" if b"?" in target.path else b"?"
        path = target.path + separator + options.query()
        try:
            return await remotecommand.connect(
                target.endpoint,
                UpgradeRequest(b"GET", path, target.host, headers),
                user,
                clock=reactor,
                timeout_seconds=timeout_seconds,
                protocols=[protocol],
            )
        except APIError as problem:
            if problem.code not in _PROTOCOL_REFUSAL_CODES:
                raise
            refused = problem
    raise refused

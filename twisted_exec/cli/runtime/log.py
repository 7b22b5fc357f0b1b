"""
``twisted-exec iri log``: the log of a machine at its runtime.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import BadGateway
from twisted_exec.cli.runtime.place import headers_for, login
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import console_pb2
from twisted_exec.poollet.exec_urls import Dialler
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, ask_first
from twisted_exec.streaming.text.download import DOWNLOADS

_TIMEOUT_SECONDS = 30.0


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command's parser."""
    parser.add_argument("id", metavar="ID", help="the runtime's id of the machine")
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new output")
    parser.add_argument(
        "--tail", metavar="LINES", type=_count, help="begin with this many of the last lines"
    )
    parser.add_argument("--timestamps", action="store_true", help="begin each line with its time")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f'"{text}" is no number of lines')
    return int(text)


def asked_of(options: argparse.Namespace) -> LogOptions:
    """Return the selected options of the log."""
    return LogOptions(follow=options.follow, timestamps=options.timestamps, tail_lines=options.tail)


async def log(client: IRIClient, options: argparse.Namespace) -> str:
    """Print the log to standard output, unchanged."""
    from twisted.internet import reactor

    dialler = Dialler(
        reactor,
        runtime_ca=options.ca_file or "",
        trusted_uids=options.runtime_uid,
        runtime=str(client.target),
    )
    complete = await read_log(
        client,
        dialler,
        options.id,
        asked_of(options),
        _print,
        reactor,
        login=options.as_user or login(),
    )
    if not complete:
        raise BadGateway("the log was cut off")
    return ""


def _print(data: bytes) -> None:
    # Blocking writes: a slow reader pauses this program and so the runtime; nothing is buffered here.
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def read_log(
    client: IRIClient,
    dialler: Dialler,
    machine_id: str,
    log_options: LogOptions,
    take: Callable[[bytes], None],
    reactor: Any,
    *,
    login: str,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> bool:
    """
    Get the URL of a log from a runtime, and read it to its end.

    :return: whether it is complete.
    :raises APIError: the runtime refuses, or its URL does not work.
    """
    answer = await client.log(console_pb2.LogRequest(machine_id=machine_id), user=login)
    target = dialler.target(answer.url)
    query = log_options.query()
    path = target.path + (b"?" + query if query else b"")
    head = UpgradeRequest(b"GET", path, target.host, headers_for(login))
    try:
        _, download = await ask_first(
            [(target.label, target.endpoint)],
            head,
            clock=reactor,
            connect_seconds=timeout_seconds,
            answer_seconds=timeout_seconds,
            factory=DOWNLOADS,
        )
    except UpgradeRefused as refused:
        raise refused.as_api_error() from None
    ended: Deferred[bool] = Deferred(lambda _: download.abort())
    download.deliver(take, ended.callback)
    return await ended

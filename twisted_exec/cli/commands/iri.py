"""
``twisted-exec iri``: requests to a machine runtime, without a cluster.

URLs have the rules of a poollet (:mod:`twisted_exec.poollet.dialling`).  Runtimes of other projects
use up a token with any request, so each protocol needs a URL of its own.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from twisted_exec.api.logs import LogOptions
from twisted_exec.cli.console.options import add_session_options
from twisted_exec.cli.console.program import ConsoleProgram, conclude, open_standard_descriptors
from twisted_exec.cli.messages import explain
from twisted_exec.cli.options import duration
from twisted_exec.cli.output import FORMATS
from twisted_exec.cli.runner import failed, run_in_reactor
from twisted_exec.tls.unix import uid_of

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from twisted_exec.iri.client import IRIClient
    from twisted_exec.poollet.dialling import Dialler
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
    from twisted_exec.wire.stream_options import StreamOptions


_LARGEST_FILE_BYTES = 4 << 20

Ask = Callable[["IRIClient", argparse.Namespace], Awaitable[str]]
"""Sends one request, and returns the text to print."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``iri`` to a program's commands."""
    parser = subparsers.add_parser(
        "iri",
        help="call a machine runtime directly, without an API server",
        description="Call a machine runtime directly, through the machine runtime interface.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    _output(
        _command(commands, "version", "print the name and the version of the runtime", _version)
    )
    _output(_command(commands, "status", "print the classes that the runtime offers", _status))

    listed = _output(_command(commands, "list", "list the machines of the runtime", _list))
    listed.add_argument(
        "-l",
        "--selector",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_pair,
        help="only machines with this label; may be repeated",
    )
    got = _output(_command(commands, "get", "print one machine", _get))
    got.add_argument("id", metavar="ID", help="the runtime's id of the machine")

    happened = _output(_command(commands, "events", "print the events of machines", _events))
    happened.add_argument(
        "id", metavar="ID", nargs="?", default="", help="only events of this machine"
    )

    register_exec(commands)
    logged = _command(commands, "log", "print the console output of a machine", log)
    add_log_options(logged)
    add_user_option(logged)

    create = _output(_command(commands, "create", "create a machine", _create))
    create.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        required=True,
        help="the machine as JSON or YAML, as get -o yaml shows one; - reads standard input",
    )
    power = _command(commands, "power", "switch a machine on or off", _power)
    power.add_argument(
        "power", metavar="on|off", choices=("on", "off"), help="the desired power state"
    )
    power.add_argument("id", metavar="ID", help="the runtime's id of the machine")

    delete = _command(commands, "delete", "delete machines with their state", _delete)
    delete.add_argument("id", metavar="ID", nargs="+", help="the runtime's ids of the machines")


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    description: str,
    ask: Ask,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=description, description=f"{description[0].upper()}{description[1:]}."
    )
    parser.set_defaults(run=lambda options: run(ask, options))
    add_runtime_options(parser)
    return parser


def _output(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        default="table",
        help="the format of the output (default: %(default)s)",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f'"{text}" is not KEY=VALUE')
    return key, value


def run(ask: Ask, options: argparse.Namespace) -> int:
    """Send a request in a reactor of its own; return the exit code."""
    try:
        where = place(options)
    except NoRuntimeError as problem:
        return _fail(str(problem))
    return run_in_reactor("iri", lambda reactor: answer(ask, options, where, reactor))


async def answer(ask: Ask, options: argparse.Namespace, where: RuntimePlace, reactor: Any) -> int:
    """
    Send a request to one runtime, print the answer or an error of one line; return the exit code.
    """
    from twisted_exec.api.status import APIError
    from twisted_exec.iri.target import TargetError

    try:
        client = connect(options, where, reactor)
    except (TargetError, ValueError) as problem:
        return _fail(str(problem))
    try:
        sys.stdout.write(await ask(client, options))
    except IRIInputError as problem:
        return _fail(str(problem))
    except APIError as refusal:
        return _fail(explain_refusal(refusal, client))
    finally:
        client.stopService()
    return 0


def connect(options: argparse.Namespace, where: RuntimePlace, reactor: Any) -> IRIClient:
    """
    Return a client of the selected runtime.

    :raises TargetError: its address is unusable, or a file for TLS is missing.
    """
    from twisted_exec.iri.client import IRIClient
    from twisted_exec.iri.target import MutualTLS, TargetError

    files = (options.ca_file, options.cert_file, options.key_file)
    if any(files[1:]) and not all(files):
        raise TargetError("--ca-file, --cert-file and --key-file go together")
    return IRIClient(
        where.target,
        reactor,
        tls=MutualTLS(*files) if all(files) else None,
        trusted_uids=options.runtime_uid,
        revision=where.revision,
        timeout_seconds=options.request_timeout,
    )


def explain_refusal(refusal: Any, client: IRIClient) -> str:
    """Return the message for an error, which may name the runtime's address."""
    if client.trouble:
        return f"{client.target}: {client.trouble}"
    message = str(refusal.message).replace('machines "', 'machine "')
    if refusal.retry_after_seconds:
        return f"{message}; try again in {refusal.retry_after_seconds} s"
    return message


def _fail(why: str) -> int:
    return failed("iri", why)


class IRIInputError(Exception):
    """The arguments are not usable; the message says why."""


# The commands.


async def _version(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    version = await client.version(pb.VersionRequest())
    return output.version(version) if _as_table(options) else _document(version, options)


async def _status(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    status = await client.status(pb.StatusRequest())
    if _as_table(options):
        return output.status(status)
    return _document(list(status.machine_class_status), options)


async def _list(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    selector = pb.MachineFilter(label_selector=dict(options.selector))
    machines = list((await client.list_machines(pb.ListMachinesRequest(filter=selector))).machines)
    if _as_table(options):
        return output.machines(machines, time.time())
    return _document(machines, options)


async def _get(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.api.status import NotFound
    from twisted_exec.cli import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    request = pb.ListMachinesRequest(filter=pb.MachineFilter(id=options.id))
    matches = [
        machine
        for machine in (await client.list_machines(request)).machines
        if machine.metadata.id == options.id  # the runtime may ignore the filter
    ]
    if not matches:
        raise NotFound("machines", options.id)
    if _as_table(options):
        return output.machines(matches[:1], time.time())
    return _document(matches[0], options)


async def _events(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    request = pb.ListEventsRequest(filter=pb.EventFilter(id=options.id))
    events = list((await client.list_events(request)).events)
    return output.events(events) if _as_table(options) else _document(events, options)


async def _create(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    request = pb.CreateMachineRequest(machine=_machine(options.filename))
    machine = (await client.create_machine(request)).machine
    if _as_table(options):
        return output.machines([machine], time.time())
    return _document(machine, options)


def _machine(path: str) -> Any:
    from google.protobuf.json_format import ParseDict, ParseError

    from twisted_exec.api.yaml_reader import parse_yaml
    from twisted_exec.iri.protos import machine_pb2 as pb

    try:
        if path == "-":
            text = sys.stdin.read(_LARGEST_FILE_BYTES + 1)
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LARGEST_FILE_BYTES + 1)
        if len(text) > _LARGEST_FILE_BYTES:
            raise IRIInputError(f"{path} is larger than {_LARGEST_FILE_BYTES} bytes")
        document = parse_yaml(text)
        if not isinstance(document, dict):
            raise IRIInputError(f"{path} holds no machine")
        return ParseDict(document, pb.Machine())
    except OSError as problem:
        raise IRIInputError(f"cannot read {path}: {problem.strerror}") from None
    except ValueError as problem:
        why = str(problem).removeprefix("not YAML: ")
        raise IRIInputError(f"{path} is neither JSON nor YAML: {why}") from None
    except ParseError as problem:
        raise IRIInputError(f"{path} holds no machine: {problem}") from None


async def _power(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.iri.protos import machine_pb2 as pb

    power = pb.POWER_ON if options.power == "on" else pb.POWER_OFF
    request = pb.UpdateMachinePowerRequest(machine_id=options.id, power=power)
    await client.update_machine_power(request)
    return f"machine {options.id} is to be {options.power}\n"


async def _delete(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.iri.protos import machine_pb2 as pb

    for machine_id in options.id:
        await client.delete_machine(pb.DeleteMachineRequest(machine_id=machine_id))
        sys.stdout.write(f"machine {machine_id} deleted\n")
    return ""


def _as_table(options: argparse.Namespace) -> bool:
    return bool(options.output == "table")


def _document(message: Any, options: argparse.Namespace) -> str:
    from twisted_exec.cli import output

    return output.document(message, options.output)


ENVIRONMENT: Mapping[str, str] = {
    "IRI_MACHINE_RUNTIME_ENDPOINT": "ironcore",
    "ORI_MACHINE_RUNTIME_ENDPOINT": "onmetal",
}
"""Environment variables with a gRPC target, in order, and the revision that each implies."""

SOCKETS: Mapping[str, str] = {
    "/var/run/iri-machinebroker.sock": "ironcore",
    "/var/run/iri-machineprovider.sock": "ironcore",
    "/var/run/ori-machinebroker.sock": "onmetal",
    "/var/run/ori-virtd.sock": "onmetal",
    "/var/run/iri-virtd.sock": "spheric",
}
"""Sockets of known programs, in order, and the revision that each implies."""

REVISIONS = ("ironcore", "onmetal", "onmetal-0.1", "spheric")
"""Copied from :mod:`twisted_exec.iri.revisions`, which is slow to import."""


@dataclass(frozen=True)
class RuntimePlace:
    """Address and revision of a runtime."""

    target: str
    revision: str


class NoRuntimeError(ValueError):
    """No runtime was given or found; the message is for the user."""


def _revision(name: str) -> str:
    if name not in REVISIONS:
        from twisted_exec.iri.revisions import revision

        try:
            revision(name)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return name


def add_runtime_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command's parser."""
    group = parser.add_argument_group("machine runtime")
    group.add_argument(
        "--address",
        metavar="TARGET",
        help="the runtime: unix:///PATH or dns:///HOST:PORT (default: "
        "$IRI_MACHINE_RUNTIME_ENDPOINT, $ORI_MACHINE_RUNTIME_ENDPOINT, or the first well-known "
        "socket that exists)",
    )
    group.add_argument(
        "--revision",
        type=_revision,
        choices=REVISIONS,
        metavar="NAME",
        help=f"the runtime's gRPC API: {', '.join(REVISIONS)} (default: that of the variable or "
        "well-known socket, else ironcore)",
    )
    group.add_argument("--ca-file", metavar="F", help="the CA of the runtime, for TCP and https")
    group.add_argument("--cert-file", metavar="F", help="your client certificate, for TCP")
    group.add_argument("--key-file", metavar="F", help="the private key of that certificate")
    group.add_argument(
        "--runtime-uid",
        metavar="UID",
        type=_user,
        action="append",
        default=[],
        help="a user, by number or name, whose UNIX sockets are trusted besides root's and your "
        "own; may be repeated",
    )
    group.add_argument(
        "--request-timeout",
        metavar="TIME",
        type=duration,
        help="the time limit of each answer, such as 5s (default: that of the method)",
    )


def _user(text: str) -> int:
    try:
        return uid_of(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def place(
    options: argparse.Namespace,
    environment: Mapping[str, str] = os.environ,
    sockets: Mapping[str, str] = SOCKETS,
) -> RuntimePlace:
    """
    Return the selected runtime: the option's, the environment's, or a well-known socket.

    :raises NoRuntimeError: there is none.
    """
    target, hint = options.address or "", REVISIONS[0]
    if not target:
        target, hint = _found(environment, sockets)
    return RuntimePlace(target, options.revision or hint)


def _found(environment: Mapping[str, str], sockets: Mapping[str, str]) -> tuple[str, str]:
    for variable, revision in ENVIRONMENT.items():
        if environment.get(variable):
            return environment[variable], revision
    for path, revision in sockets.items():
        if os.path.exists(path):
            return f"unix://{path}", revision
    names: Sequence[str] = list(ENVIRONMENT)
    raise NoRuntimeError(
        f"which machine runtime? Give --address, or set {names[0]}; "
        "no well-known socket exists on this host"
    )


_TIMEOUT_SECONDS = 30.0
_OF_THE_PROTOCOL = (400, 403, 502)
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


def add_user_option(parser: argparse.ArgumentParser) -> None:
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


class _Program(ConsoleProgram):
    def __init__(self, options: argparse.Namespace, where: RuntimePlace) -> None:
        super().__init__(options)
        self._where = where
        self._client: IRIClient | None = None

    @property
    def step(self) -> str:
        return "waiting for the runtime"

    def attempt(
        self, user: ConsoleUser, reactor: Any, options: StreamOptions
    ) -> Deferred[ConsoleStream]:
        from twisted.internet.defer import Deferred

        # Unusable arguments must fail the Deferred, too: the terminal is raw by now.
        return Deferred.fromCoroutine(self._attempt(user, reactor, options))

    async def _attempt(
        self, user: ConsoleUser, reactor: Any, stream_options: StreamOptions
    ) -> ConsoleStream:

        from twisted_exec.poollet.dialling import Dialler

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
        from twisted_exec.api.status import APIError
        from twisted_exec.iri.target import TargetError

        if isinstance(error, APIError) and self._client is not None:
            return explain_refusal(error, self._client)
        return str(error) if isinstance(error, TargetError) else explain(error)


def login() -> str:
    """Return the name of the local user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user that has no name on this host
        return f"uid-{os.getuid()}"


def headers_for(login: str, machine_uid: str = "") -> list[tuple[bytes, bytes]]:
    """Return the headers of a request with a token."""
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
    :param protocols: tried in this order; by default all.
    :raises APIError: the runtime refuses, or its URL does not work.
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

    from twisted_exec.poollet.dialling import Dialler

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
        from twisted_exec.api.status import BadGateway

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
    from twisted.internet.defer import Deferred

    from twisted_exec.iri.protos import console_pb2
    from twisted_exec.streaming.http.upgrade_client import (
        UpgradeRefused,
        UpgradeRequest,
        ask_first,
    )
    from twisted_exec.streaming.text.download import DOWNLOADS

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

"""
``twisted-exec iri``: requests to a machine runtime, without a cluster.

For operators of runtimes; the counterpart of ``irictl-machine`` and ``orictl-machine`` of ironcore
and onmetal, for all revisions of the interface.  The user needs access to the runtime's socket, or
a certificate for it.

Twisted and gRPC are imported only if there is a request to send.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from twisted_exec.cli.command import failed, run_in_reactor
from twisted_exec.cli.iri import exec, log
from twisted_exec.cli.iri.options import NoRuntimeError, Place, add_runtime_options, place
from twisted_exec.cli.iri.output import FORMATS

if TYPE_CHECKING:
    from twisted_exec.iri.client import IRIClient

_LARGEST_FILE_BYTES = 4 << 20

Ask = Callable[["IRIClient", argparse.Namespace], Awaitable[str]]
"""One command: sends its request, and returns the text to print."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``iri`` to a program's commands.  Its options have ``run(options) -> int``."""
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

    exec.register(commands)
    logged = _command(commands, "log", "print the console output of a machine", log.log)
    log.add_log_options(logged)
    exec.add_user_option(logged)

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
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def run(ask: Ask, options: argparse.Namespace) -> int:
    """
    Send a request in a reactor of its own, and print the answer.

    :return: the exit code: 0, or 1 after an error message of one line.
    """
    try:
        where = place(options)
    except NoRuntimeError as problem:
        return _fail(str(problem))
    return run_in_reactor("iri", lambda reactor: answer(ask, options, where, reactor))


async def answer(ask: Ask, options: argparse.Namespace, where: Place, reactor: Any) -> int:
    """
    Send a request to one runtime, and print the answer or an error of one line.

    :return: the exit code.
    """
    from twisted_exec.api.status import APIError
    from twisted_exec.iri.target import TargetError

    try:
        client = connect(options, where, reactor)
    except (TargetError, ValueError) as problem:
        return _fail(str(problem))
    try:
        sys.stdout.write(await ask(client, options))
    except InputError as problem:
        return _fail(str(problem))
    except APIError as refusal:
        return _fail(explain(refusal, client))
    finally:
        client.stopService()
    return 0


def connect(options: argparse.Namespace, where: Place, reactor: Any) -> IRIClient:
    """
    Return a client of the selected runtime.

    :raises TargetError: its address is unusable.
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


def explain(refusal: Any, client: IRIClient) -> str:
    """Return the message for an error; it may name the runtime's address, because the user did."""
    if client.trouble:
        return f"{client.target}: {client.trouble}"
    message = str(refusal.message).replace('machines "', 'machine "')
    if refusal.retry_after_seconds:
        return f"{message}; try again in {refusal.retry_after_seconds} s"
    return message


def _fail(why: str) -> int:
    return failed("iri", why)


class InputError(Exception):
    """The arguments are not usable; the message says why."""


# The commands.


async def _version(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli.iri import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    version = await client.version(pb.VersionRequest())
    return output.version(version) if _as_table(options) else _document(version, options)


async def _status(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli.iri import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    status = await client.status(pb.StatusRequest())
    if _as_table(options):
        return output.status(status)
    return _document(list(status.machine_class_status), options)


async def _list(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli.iri import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    selector = pb.MachineFilter(label_selector=dict(options.selector))
    machines = list((await client.list_machines(pb.ListMachinesRequest(filter=selector))).machines)
    if _as_table(options):
        return output.machines(machines, time.time())
    return _document(machines, options)


async def _get(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.api.status import NotFound
    from twisted_exec.cli.iri import output
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
    from twisted_exec.cli.iri import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    request = pb.ListEventsRequest(filter=pb.EventFilter(id=options.id))
    events = list((await client.list_events(request)).events)
    return output.events(events) if _as_table(options) else _document(events, options)


async def _create(client: IRIClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli.iri import output
    from twisted_exec.iri.protos import machine_pb2 as pb

    request = pb.CreateMachineRequest(machine=_machine(options.filename))
    machine = (await client.create_machine(request)).machine
    if _as_table(options):
        return output.machines([machine], time.time())
    return _document(machine, options)


def _machine(path: str) -> Any:
    """:raises InputError: the file has no machine."""
    import yaml
    from google.protobuf.json_format import ParseDict, ParseError

    from twisted_exec.iri.protos import machine_pb2 as pb

    try:
        if path == "-":
            text = sys.stdin.read(_LARGEST_FILE_BYTES + 1)
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LARGEST_FILE_BYTES + 1)
        if len(text) > _LARGEST_FILE_BYTES:
            raise InputError(f"{path} is larger than {_LARGEST_FILE_BYTES} bytes")
        document = yaml.safe_load(text)
        if not isinstance(document, dict):
            raise InputError(f"{path} holds no machine")
        return ParseDict(document, pb.Machine())
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as problem:
        raise InputError(f"{path} is neither JSON nor YAML: {problem}") from None
    except ParseError as problem:
        raise InputError(f"{path} holds no machine: {problem}") from None


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
    from twisted_exec.cli.iri import output

    return output.document(message, options.output)

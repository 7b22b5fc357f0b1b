"""
``twisted-exec iri``: requests to a machine runtime, without a cluster.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.api.yaml_reader import parse_yaml
from twisted_exec.cli.failures import failed
from twisted_exec.cli.runner import run_in_reactor
from twisted_exec.cli.runtime import output
from twisted_exec.cli.runtime.console import register_exec
from twisted_exec.cli.runtime.log import add_log_options, log
from twisted_exec.cli.runtime.output import FORMATS
from twisted_exec.cli.runtime.place import (
    NoRuntimeError,
    RuntimePlace,
    add_runtime_options,
    add_user_option,
    connect,
    explain_refusal,
    place,
)
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.target import TargetError

_LARGEST_FILE_BYTES = 4 << 20

Ask = Callable[[IRIClient, argparse.Namespace], Awaitable[str]]
"""Sends one request, and returns the text to print."""

_UNKNOWN_FIELD = re.compile(
    r'has no field named "(?P<field>.*)" at "Machine\.?(?P<place>.*)"\.?\s+Available .*"\[(?P<fields>.*)\]"'
)


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``iri``."""
    parser.description = "Call a machine runtime directly, through the machine runtime interface."
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
    create.add_argument(
        "--name",
        metavar="NAMESPACE/NAME",
        type=_name,
        help="the Machine that the machine is for, as a poollet labels it; it selects a console line",
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


def _name(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not slash or dns_label(namespace) or dns_subdomain(name):
        raise argparse.ArgumentTypeError(f'"{text}" is not NAMESPACE/NAME, such as default/web-1')
    return namespace, name


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


def _fail(why: str) -> int:
    return failed("iri", why)


class IRIInputError(Exception):
    """The arguments are not usable; the message says why."""


async def _version(client: IRIClient, options: argparse.Namespace) -> str:
    version = await client.version(pb.VersionRequest())
    return output.version(version) if _as_table(options) else _document(version, options)


async def _status(client: IRIClient, options: argparse.Namespace) -> str:
    status = await client.status(pb.StatusRequest())
    if _as_table(options):
        return output.status(status)
    return _document(list(status.machine_class_status), options)


async def _list(client: IRIClient, options: argparse.Namespace) -> str:
    selector = pb.MachineFilter(label_selector=dict(options.selector))
    machines = list((await client.list_machines(pb.ListMachinesRequest(filter=selector))).machines)
    if _as_table(options):
        return output.machines(machines, time.time())
    return _document(machines, options)


async def _get(client: IRIClient, options: argparse.Namespace) -> str:
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
    request = pb.ListEventsRequest(filter=pb.EventFilter(id=options.id))
    events = list((await client.list_events(request)).events)
    return output.events(events) if _as_table(options) else _document(events, options)


async def _create(client: IRIClient, options: argparse.Namespace) -> str:
    wanted = _machine(options.filename)
    if options.name is not None:
        labels = wanted.metadata.labels
        labels[IRONCORE.namespace_label], labels[IRONCORE.name_label] = options.name
    request = pb.CreateMachineRequest(machine=wanted)
    machine = (await client.create_machine(request)).machine
    if _as_table(options):
        return output.machines([machine], time.time())
    return _document(machine, options)


def _machine(path: str) -> Any:
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
        raise IRIInputError(f"{path} holds no machine: {_shown(str(problem))}") from None


def _shown(problem: str) -> str:
    """Return the message of a ParseError as one line in the words of the file."""
    if unknown := _UNKNOWN_FIELD.search(problem):
        place, field = unknown["place"], unknown["field"]
        why = f"{place or 'the machine'} has no field {field!r}, only {unknown['fields']}"
        hint = "; the name of a Machine is given with --name NAMESPACE/NAME"
        return why.replace("'", "") + (hint if (place, field) == ("metadata", "name") else "")
    return re.sub(r"(Failed to parse \w+ field: )+", "", problem).rstrip(".")


async def _power(client: IRIClient, options: argparse.Namespace) -> str:
    power = pb.POWER_ON if options.power == "on" else pb.POWER_OFF
    request = pb.UpdateMachinePowerRequest(machine_id=options.id, power=power)
    await client.update_machine_power(request)
    return f"machine {options.id} is to be {options.power}\n"


async def _delete(client: IRIClient, options: argparse.Namespace) -> str:
    for machine_id in options.id:
        await client.delete_machine(pb.DeleteMachineRequest(machine_id=machine_id))
        sys.stdout.write(f"machine {machine_id} deleted\n")
    return ""


def _as_table(options: argparse.Namespace) -> bool:
    return bool(options.output == "table")


def _document(message: Any, options: argparse.Namespace) -> str:
    return output.document(message, options.output)

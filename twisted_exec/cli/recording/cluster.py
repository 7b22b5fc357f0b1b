"""
Recordings in a cluster: ``twisted-exec recording list``, and the content of ConsoleRecordings.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO

from twisted_exec.api import times
from twisted_exec.cli import command
from twisted_exec.cli.command import failed, server_command
from twisted_exec.cli.console.messages import explain, one_line
from twisted_exec.cli.machine_options import add_namespace_option, object_name

if TYPE_CHECKING:
    from twisted_exec.cli.client import CommandClient

Object = dict[str, Any]
Use = Callable[[argparse.Namespace, BinaryIO, str], int]
"""Uses the content of a recording, and its newest head that is stored elsewhere; returns the exit code."""

_TIMEOUT_SECONDS = 30.0


def register_list(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``list`` to the commands of ``recording``."""
    listing = server_command(
        commands, "recording", "list", "list the recordings of a cluster, the newest last", _list
    )
    add_namespace_option(listing)
    listing.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    listing.add_argument("--machine", metavar="NAME", type=object_name, help="of this machine only")


async def _list(client: CommandClient, options: argparse.Namespace) -> str:
    from twisted_exec.api.kinds import CONSOLERECORDINGS
    from twisted_exec.cli.iri.output import table

    namespace = "" if options.all_namespaces else client.config.namespace
    selector = f"spec.machine={options.machine}" if options.machine else ""
    listed = await client.list(CONSOLERECORDINGS.resource, namespace, field_selector=selector)
    recordings = sorted(listed["items"], key=lambda each: each["metadata"]["creationTimestamp"])
    head = ["NAME", "MACHINE", "INPUT", "STATE", "BEGIN", "LENGTH", "BYTES", "USERS", "POLICIES"]
    rows = [_row(each) for each in recordings]
    if options.all_namespaces:
        head.insert(0, "NAMESPACE")
        for row, each in zip(rows, recordings, strict=True):
            row.insert(0, one_line(each["metadata"]["namespace"]))
    return table(head, rows)


def _row(recording: Object) -> list[str]:
    from twisted_exec.api.kinds.policies.consolerecordings import end_of, size_of, state_of

    spec, status = recording["spec"], recording.get("status", {})
    begin, end, size = status.get("startTime", ""), end_of(recording), size_of(recording)
    length = times.human(end - times.seconds(begin)) if begin and end is not None else ""
    values = (
        recording["metadata"]["name"],
        spec["machine"],
        spec.get("input", ""),
        state_of(recording),
        begin,
        length,
        "" if size is None else size,
        ",".join(spec.get("users", ())) or spec.get("user", ""),
        ",".join(spec.get("policies", ())),
    )
    return [one_line(str(value)) or "<none>" for value in values]


def is_file(name: str) -> bool:
    """Return whether an argument is a file; otherwise it is the name of a ConsoleRecording."""
    return os.sep in name or os.path.exists(name)


def use_content(options: argparse.Namespace, use: Use) -> int:
    """
    Read the content of the ConsoleRecording that ``options.file`` names, and use it.

    The content is in a temporary file without a name.
    """
    return command.run_in_reactor("recording", lambda reactor: _using(options, use, reactor))


async def _using(options: argparse.Namespace, use: Use, reactor: Any) -> int:
    from twisted_exec.api.kinds import CONSOLERECORDINGS
    from twisted_exec.api.status import APIError
    from twisted_exec.cli.client import CommandClient
    from twisted_exec.cli.cluster_options import config_of
    from twisted_exec.kube.consoles.recording import read_recording
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
    from twisted_exec.tls.errors import TLSConfigError

    name = options.file
    timeout = options.request_timeout or _TIMEOUT_SECONDS
    no_file = f"there is no file {name}"
    try:
        object_name(name)
        config = config_of(options)
        client = CommandClient(config, reactor, timeout_seconds=timeout, agent="twisted-exec")
        try:
            with TemporaryFile() as file:
                # The object first: its head is not newer than the content.
                recording = await client.get(CONSOLERECORDINGS.resource, name, config.namespace)
                await read_recording(
                    config,
                    config.namespace,
                    name,
                    file,
                    reactor,
                    timeout_seconds=timeout,
                    agent="twisted-exec recording",
                )
                file.seek(0)
                return use(options, file, recording.get("status", {}).get("head", ""))
        finally:
            await client.close()
    except argparse.ArgumentTypeError:
        return failed("recording", f"{no_file}, and {name} cannot be a ConsoleRecording")
    except (KubeConfigError, TLSConfigError) as problem:
        return failed("recording", f"{no_file}, and the cluster cannot be asked: {problem}")
    except APIError as refusal:
        hint = f"; {no_file} either" if refusal.code == 404 else ""
        return failed("recording", f"{explain(refusal, config.namespace)}{hint}")

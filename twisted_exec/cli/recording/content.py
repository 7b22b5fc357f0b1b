"""
The content of a recording that is a file, or a ConsoleRecording of a cluster.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO

from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.kinds.consolerecordings import CONTENT
from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.cli import runner
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.failures import InputError, crashed, failed
from twisted_exec.cli.machine_options import object_name
from twisted_exec.cli.options import config_of
from twisted_exec.cli.refusal_texts import with_next_request
from twisted_exec.journal.snapshot import NotAJournal
from twisted_exec.kube.downloads import open_download, receive
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.machine_requests import with_current_credentials
from twisted_exec.recording.excerpt import NotClosed
from twisted_exec.recording.export import NothingPrinted
from twisted_exec.recording.proof_lines import InvalidRecording, NotARecording
from twisted_exec.recording.signatures import UnusableCertificate
from twisted_exec.streaming.text.download import Download
from twisted_exec.tls.errors import TLSConfigError

Use = Callable[[argparse.Namespace, BinaryIO, str], int]
"""Uses the content of a recording, and its newest head elsewhere; returns the exit code."""

NOT_CLOSED = 2
"""Exit code for a recording that is not closed."""
_TIMEOUT_SECONDS = 30.0


def is_file(name: str) -> bool:
    """Return whether an argument is a file."""
    return os.sep in name or os.path.exists(name)


def use_content(options: argparse.Namespace, use: Use) -> int:
    """
    Use the content of the ConsoleRecording that ``options.file`` names.

    :return: the exit code; errors are reported.
    """

    def reported(options: argparse.Namespace, file: BinaryIO, head: str) -> int:
        return reporting(options, lambda: use(options, file, head))

    return runner.run_in_reactor(
        options.command, lambda reactor: _using(options, reported, reactor)
    )


async def _using(options: argparse.Namespace, use: Use, reactor: Any) -> int:
    name = options.file
    timeout = options.request_timeout or _TIMEOUT_SECONDS
    no_file = f"there is no file {name}"
    try:
        object_name(name)
        config = config_of(options)
        client = CommandClient(config, reactor, timeout_seconds=timeout, agent="twisted-exec")
        try:
            with temporary_file() as file:
                # The object first: its head is not newer than the content.
                recording = await client.get(CONSOLERECORDINGS.resource, name, config.namespace)
                try:
                    await _download(config, name, file, reactor, timeout)
                    file.seek(0)
                except OSError as problem:
                    why = f"cannot write to {gettempdir()}: {problem.strerror}"
                    return failed(options.command, why)
                return use(options, file, recording.get("status", {}).get("head", ""))
        finally:
            await client.close()
    except argparse.ArgumentTypeError:
        return failed(options.command, f"{no_file}, and {name} cannot be a ConsoleRecording")
    except InputError as problem:
        return failed(options.command, str(problem))
    except (KubeConfigError, TLSConfigError) as problem:
        return failed(options.command, f"{no_file}, and the cluster cannot be asked: {problem}")
    except APIError as refusal:
        hint = ""
        if refusal.code == 404:
            names = f"twisted-exec recording list -n {config.namespace}"
            hint = f"; {no_file} either; {names} lists the recordings there"
        why = explain(with_next_request(refusal, "get", "content"), config.namespace, config)
        return failed(options.command, f"{why}{hint}")


async def _download(
    config: ClientConfig, name: str, file: BinaryIO, reactor: Any, seconds: float
) -> None:
    async def opened(config: ClientConfig) -> Download:
        return await open_download(
            config,
            CONSOLERECORDINGS.resource.path(config.namespace, name, CONTENT),
            b"",
            reactor,
            timeout_seconds=seconds,
            agent="twisted-exec recording",
        )

    if not await receive(await with_current_credentials(config, reactor, opened), file.write):
        raise BadGateway(f'recording "{name}" is incomplete: the connection was lost; try again')


def temporary_file() -> BinaryIO:
    """
    Return a file that is deleted when it is closed.

    :raises InputError: it cannot be made.
    """
    try:
        return TemporaryFile()
    except OSError as problem:
        raise InputError(
            f"cannot make a temporary file: {problem.strerror}: set TMPDIR to a directory that you may write to"
        ) from None


def reporting(options: argparse.Namespace, command: Callable[[], int]) -> int:
    """Return the exit code of a command about a recording; its errors are reported."""
    try:
        return command()
    except BrokenPipeError:
        raise
    except IsADirectoryError as error:
        return failed(
            options.command, f"{error.filename} is a directory; give the file of a recording"
        )
    except OSError as error:
        return failed(options.command, f"{error.filename or options.file}: {error.strerror}")
    except NotARecording as error:
        return failed(options.command, f"{options.file}: {error}")
    except InvalidRecording as error:
        return failed(options.command, f"{options.file}: not valid: {error}")
    except NotClosed:
        failed(
            options.command,
            f"{options.file}: not closed: export it again when its STATE is Closed",
        )
        return NOT_CLOSED
    except ModuleNotFoundError as error:
        return crashed(options.command, error)
    except (
        InputError,
        NotAJournal,
        NothingPrinted,
        TLSConfigError,
        UnusableCertificate,
    ) as error:
        return failed(options.command, str(error))

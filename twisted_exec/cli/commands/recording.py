"""
``twisted-exec recording``: recordings in files, and ConsoleRecordings of a cluster.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import BinaryIO

from twisted_exec.api.times import timestamp
from twisted_exec.cli.failures import failed
from twisted_exec.cli.machine_options import add_namespace_option, object_name
from twisted_exec.cli.options import add_cluster_options
from twisted_exec.cli.recording.content import is_file, reporting, use_content
from twisted_exec.cli.recording.export import (
    IDLE_SECONDS,
    VERSION_2,
    cut_recording,
    export_recording,
)
from twisted_exec.cli.recording.listing import list_recordings
from twisted_exec.cli.recording.player import Player, play
from twisted_exec.cli.recording.verification import verify_recording
from twisted_exec.cli.runner import server_command
from twisted_exec.cli.times import since_time
from twisted_exec.recording.export import NothingPrinted
from twisted_exec.recording.playback import extent, frames
from twisted_exec.recording.proof_lines import MILLISECOND

_EXPORT = """\
Write a ConsoleRecording of a cluster to FILE; or, with --certificate, a range of a journal as a
recording, signed with the certificate of a recorder. It is an asciicast (version 3), which asciinema
plays. Journals are on the host of the runtime: run it there, as the runtime's user; the runtime may
run meanwhile, and the journal is not changed. With --asciicast 2, also of a recording in a file, the
result is for players such as asciinema 2; with --svg it is an animated picture for a page. Both prove
nothing, so verify the recording first.
"""
_VERIFY = """\
Verify a recording with the CA of its recorder alone. Every change, also of one byte, is found. A
ConsoleRecording of a cluster is compared with the head in its status as well, so it is noticed if its
end is missing.
"""
_VERIFY_EPILOG = """\
Exit code: 0 if the recording is verified and closed; 2 if it is verified up to its newest head, but
not closed: nothing is proven about its end; 1 if it is not valid, and after an error.
"""
_PLAY = """\
Play a recording on the terminal. Keys: space pauses, . shows the next output, left and right go 10
seconds back and forth, + and - change the speed, / searches, n searches again, q quits. If standard
output is not a terminal, all output is printed at once, byte for byte as the machine printed it.
"""
_CUT = """\
Write a part of a closed recording to OUTPUT. It consists of whole blocks of up to 64 KiB, and is
verified like the whole recording. Of each other block it has a digest, which says nothing about the
content.
"""
_CUT_EPILOG = """\
Exit code: 0 if the part is written; 2 if the recording is not closed: export it again when its STATE
is Closed; 1 after an error.
"""
_FILE_OR_NAME = "the recording: a file, or else the name of a ConsoleRecording"
_TIME = "a time such as 2026-11-20T08:00:00Z, or how long ago, such as 30d or 1h30m"


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``recording``."""
    parser.description = "List, export, verify and play recordings of consoles."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _register_list(commands)
    _register_export(commands)

    verify = commands.add_parser(
        "verify", help="verify a recording", description=_VERIFY, epilog=_VERIFY_EPILOG
    )
    verify.add_argument("file", metavar="FILE|NAME", help=_FILE_OR_NAME)
    verify.add_argument(
        "--ca",
        required=True,
        metavar="FILE",
        help="CA of the recorder, the ca.crt of its PKI, such as exec-state/pki/ca.crt",
    )
    verify.add_argument(
        "--head",
        metavar="FILE",
        help="a head of the recording that was stored elsewhere, a line '# head ...': the recording "
        "must have that block, so it is noticed if its end is missing",
    )
    _add_cluster(verify)
    verify.set_defaults(run=_run(verify_recording), command="recording verify")

    play = commands.add_parser("play", help="play a recording", description=_PLAY)
    play.add_argument("file", metavar="FILE|NAME", help=_FILE_OR_NAME)
    play.add_argument(
        "--speed", type=_positive, default=1.0, metavar="FACTOR", help="default: %(default)s"
    )
    play.add_argument(
        "--idle",
        type=_positive,
        default=0.0,
        metavar="SECONDS",
        help="shorten pauses of the console to this",
    )
    play.add_argument("--at", metavar="TIME", type=since_time, help=f"begin at {_TIME}")
    _add_cluster(play)
    play.set_defaults(run=_run(_play), command="recording play")

    cut = commands.add_parser(
        "cut", help="write a part of a recording", description=_CUT, epilog=_CUT_EPILOG
    )
    cut.add_argument("file", metavar="FILE", help="the recording")
    cut.add_argument("output", metavar="OUTPUT", help="the excerpt; created with mode 0600")
    _add_between(cut, required=True)
    cut.set_defaults(run=_run(cut_recording), command="recording cut")


def _register_list(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``list`` to the commands of ``recording``."""
    listing = server_command(
        commands,
        "recording",
        "list",
        "list the recordings of a cluster, the newest last",
        list_recordings,
    )
    add_namespace_option(listing)
    listing.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    listing.add_argument("--machine", metavar="NAME", type=object_name, help="of this machine only")


def _register_export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = commands.add_parser("export", help="write a recording to a file", description=_EXPORT)
    export.add_argument(
        "journal",
        metavar="NAME|JOURNAL|RECORDING",
        help="the ConsoleRecording; the directory of the journal, .../consoles/UID; or, with "
        "--asciicast 2 or --svg, a recording in a file",
    )
    export.add_argument("file", metavar="FILE", help="the result; created with mode 0600")
    export.add_argument(
        "--certificate",
        default="",
        metavar="FILE",
        help="of a journal: certificate of the recorder, from 'twisted-exec pki recorder'",
    )
    export.add_argument("--key", default="", metavar="FILE", help="key of the certificate")
    export.add_argument(
        "--machine", metavar="NAMESPACE/NAME", default="", help="name of the machine, for the title"
    )
    forms = export.add_mutually_exclusive_group()
    forms.add_argument(
        "--asciicast",
        choices=(VERSION_2, "3"),
        default="3",
        help="version of the format; 2 carries no proof (default: %(default)s)",
    )
    forms.add_argument(
        "--svg",
        action="store_true",
        help="write an animated picture of the terminal: what the machine printed, without input",
    )
    export.add_argument(
        "--idle",
        type=_positive,
        default=IDLE_SECONDS,
        metavar="SECONDS",
        help="with --svg, shorten pauses of the console to this (default: %(default)s)",
    )
    times = export.add_mutually_exclusive_group()
    times.add_argument(
        "--since", metavar="TIME", type=since_time, help=f"only output since {_TIME}"
    )
    _add_between(times, required=False)
    _add_cluster(export)
    export.set_defaults(run=_run(export_recording), command="recording export")


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    add_namespace_option(parser)
    add_cluster_options(parser)


def _add_between(parser: argparse._ActionsContainer, *, required: bool) -> None:
    parser.add_argument(
        "--between",
        metavar=("FIRST", "LAST"),
        nargs=2,
        type=since_time,
        required=required,
        help=f"only output between two times, each {_TIME}",
    )


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is not a positive number')
    return number


def _run(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    return lambda options: reporting(options, lambda: command(options))


def _play(options: argparse.Namespace) -> int:
    if not is_file(options.file):
        return use_content(options, _play_content)
    with open(options.file, "rb") as file:
        return _play_content(options, file, "")


def _play_content(options: argparse.Namespace, file: BinaryIO, head: str) -> int:
    at = options.at // MILLISECOND if options.at else None
    first, last = extent(file)
    if at is not None and at > last:
        raise NothingPrinted("the recording ends before the time of --at", first, last)
    if at is not None and at < first:
        begins = f"the recording begins after the time of --at, at {timestamp(first / 1000)}"
        failed(options.command, f"{begins}, and is played from there", 0)
    if not sys.stdout.isatty():
        for frame in frames(file):
            if frame.code == "o" and frame.time >= (at or 0):
                sys.stdout.buffer.write(frame.data)
        sys.stdout.flush()
        return 0
    player = Player(file, speed=options.speed, idle_seconds=options.idle)
    return play(player, sys.stdin.fileno(), sys.stdout.fileno(), at)

"""
``twisted-exec recording``: recordings in files, and ConsoleRecordings of a cluster.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO

from twisted_exec.api import times
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.kinds.consolerecordings import end_of, size_of, state_of
from twisted_exec.api.status import APIError
from twisted_exec.api.times import stamp
from twisted_exec.cli import runner
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import InputError, crashed, failed
from twisted_exec.cli.machine_options import add_namespace_option, object_name
from twisted_exec.cli.messages import explain, one_line
from twisted_exec.cli.options import add_cluster_options, config_of, since_time
from twisted_exec.cli.recording.player import Player, animated_svg, play
from twisted_exec.cli.runner import server_command
from twisted_exec.cli.suggestion import missing_machine
from twisted_exec.cli.table import table
from twisted_exec.journal.snapshot import NotAJournal, Snapshot
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.recordings import read_recording
from twisted_exec.recording.chain import HEAD, HeadContent, InvalidRecording, decode_head
from twisted_exec.recording.export import NothingPrinted, excerpt, export
from twisted_exec.recording.playback import end_time, frames, version_2
from twisted_exec.recording.signatures import HeadSigner, TrustedRecorders, UnusableCertificate
from twisted_exec.recording.verification import Report, verify
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file

_NOT_CLOSED = 2
_MILLISECOND = 1_000_000
_FOREVER = 1 << 62
_IDLE_SECONDS = 2.0
_MAX_HEAD_BYTES = 64 << 10
_PIECE_BYTES = 1 << 20
_MINUTE = len("2026-11-20T08:00")

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
_VERSION_2 = "2"
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
        "--ca", required=True, metavar="FILE", help="CA of the recorder, the ca.crt of the PKI"
    )
    verify.add_argument(
        "--head",
        metavar="FILE",
        help="a head of the recording that was stored elsewhere, a line '# head ...': the recording "
        "must have that block, so it is noticed if its end is missing",
    )
    _add_cluster(verify)
    verify.set_defaults(run=_run(_verify), command="recording verify")

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

    cut = commands.add_parser("cut", help="write a part of a recording", description=_CUT)
    cut.add_argument("file", metavar="FILE", help="the recording")
    cut.add_argument("output", metavar="OUTPUT", help="the excerpt; created with mode 0600")
    _add_between(cut, required=True)
    cut.set_defaults(run=_run(_cut), command="recording cut")


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
        "--certificate", default="", metavar="FILE", help="of 'twisted-exec pki recorder'"
    )
    export.add_argument("--key", default="", metavar="FILE", help="key of the certificate")
    export.add_argument(
        "--machine", metavar="NAMESPACE/NAME", default="", help="name of the machine, for the title"
    )
    forms = export.add_mutually_exclusive_group()
    forms.add_argument(
        "--asciicast",
        choices=(_VERSION_2, "3"),
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
        default=_IDLE_SECONDS,
        metavar="SECONDS",
        help="with --svg, shorten pauses of the console to this (default: %(default)s)",
    )
    times = export.add_mutually_exclusive_group()
    times.add_argument(
        "--since", metavar="TIME", type=since_time, help=f"only output since {_TIME}"
    )
    _add_between(times, required=False)
    _add_cluster(export)
    export.set_defaults(run=_run(_export), command="recording export")


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
    return lambda options: _answering(options, lambda: command(options))


def _answered(use: Use) -> Use:
    return lambda options, file, head: _answering(options, lambda: use(options, file, head))


def _answering(options: argparse.Namespace, command: Callable[[], int]) -> int:
    try:
        return command()
    except BrokenPipeError:
        raise
    except OSError as error:
        return failed(options.command, f"{error.filename or options.file}: {error.strerror}")
    except InvalidRecording as error:
        return failed(options.command, f"{options.file}: not valid: {error}")
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


def _export(options: argparse.Namespace) -> int:
    if options.idle != _IDLE_SECONDS and not options.svg:
        raise InputError("--idle shortens the pauses of a picture: give --svg, too")
    if not options.certificate:
        return _export_object(options)
    namespace, _, name = options.machine.partition("/")
    if options.machine and not (namespace and name):
        raise InputError(f'--machine "{options.machine}": give NAMESPACE/NAME')
    machine = {"uid": os.path.basename(os.path.abspath(options.journal))}
    if name:
        machine |= {"namespace": namespace, "name": name}
    certificate = pem.certificates(
        read_file(options.certificate, "certificate"), f'certificate "{options.certificate}"'
    )[0]
    key = pem.private_key(read_file(options.key, "key"), f'key "{options.key}"')
    first, last = _range(options)
    pieces = export(
        Snapshot(options.journal),
        HeadSigner(certificate, key),
        time.time_ns,
        machine=machine,
        first=first,
        last=last,
    )
    if options.svg:
        with _temporary() as file:
            file.writelines(pieces)
            _write_svg(options, options.file, file)
    elif options.asciicast == _VERSION_2:
        _write_version_2(options.file, chain.from_iterable(map(io.BytesIO, pieces)))
    else:
        _write(options.file, pieces)
    return 0


def _export_object(options: argparse.Namespace) -> int:
    path = options.file
    if os.path.isdir(options.journal):
        raise InputError(
            f"{options.journal} is a directory: to export a journal, give --certificate and --key"
        )
    has_range = options.since or options.between
    if options.key or options.machine or (has_range and not options.svg):
        raise InputError(
            "--key, --machine, --since and --between are for a journal, with --certificate, and the "
            "last two also for --svg; of a ConsoleRecording, 'twisted-exec recording cut' makes a part"
        )

    def save(_: argparse.Namespace, content: BinaryIO, head: str) -> int:
        if options.svg:
            _write_svg(options, path, content, *_range(options))
        elif options.asciicast == _VERSION_2:
            _write_version_2(path, content)
        else:
            _write(path, iter(partial(content.read, _PIECE_BYTES), b""))
        return 0

    if os.path.exists(path):
        raise _exists(path)
    options.file = options.journal
    if is_file(options.file):
        if options.asciicast != _VERSION_2 and not options.svg:
            raise InputError(
                f"{options.file} is a file: to convert a recording, give --asciicast 2 or --svg"
            )
        with open(options.file, "rb") as file:
            return save(options, file, "")
    return _use_content(options, _answered(save))


def _temporary() -> BinaryIO:
    try:
        return TemporaryFile()
    except OSError as problem:
        raise InputError(
            f"cannot make a temporary file: {problem.strerror}: set TMPDIR to a directory that you may write to"
        ) from None


def _write_version_2(path: str, lines: Iterable[bytes]) -> None:
    _write(path, version_2(lines))


def _write_svg(
    options: argparse.Namespace,
    path: str,
    file: BinaryIO,
    first: int | None = None,
    last: int | None = None,
) -> None:
    begin = 0 if first is None else first // _MILLISECOND
    end = _FOREVER if last is None else last // _MILLISECOND
    _write(path, [animated_svg(file, begin, end, options.idle)])


def _range(options: argparse.Namespace) -> tuple[int | None, int | None]:
    return _between(options) if options.between else (options.since, None)


def _between(options: argparse.Namespace) -> tuple[int, int]:
    first, last = options.between
    if last < first:
        raise InputError("the second time of --between is before the first")
    return first, last


def _write(path: str, pieces: Iterable[bytes]) -> None:
    """Write a new file, or none at all."""
    with _created(path) as file:
        for piece in pieces:
            file.write(piece)


@contextmanager
def _created(path: str) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise _exists(path) from None
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise


def _exists(path: str) -> InputError:
    return InputError(f"{path} exists already: remove it, or give another name")


def _verify(options: argparse.Namespace) -> int:
    if not is_file(options.file):
        return _use_content(options, _answered(_verify_content))
    with open(options.file, "rb") as file:
        return _verify_content(options, file, "")


def _verify_content(options: argparse.Namespace, file: BinaryIO, head: str) -> int:
    authorities = pem.certificates(read_file(options.ca, "CA"), f'CA "{options.ca}"')
    stored = _head(options.head) if options.head else None
    if stored is None and head:
        stored = _decoded(head.encode(), "the head in the status of the ConsoleRecording")
    report = verify(file, TrustedRecorders(authorities), stored)
    end = end_time(file)
    # Names come from the file.
    sys.stdout.write(
        "".join(f"{name:<11}{one_line(text)}\n" for name, text in _summary(report, end))
    )
    if report.is_closed:
        return 0
    unsigned = (
        f", and {report.unsigned_bytes} bytes of the file after it" if report.unsigned_bytes else ""
    )
    later = "" if is_file(options.file) else "; verify it again when its STATE is Closed"
    failed(
        options.command,
        f"{options.file}: not closed: nothing is proven about output after offset "
        f"{report.head.offset}{unsigned}{later}",
    )
    return _NOT_CLOSED


def _head(path: str) -> HeadContent:
    with open(path, "rb") as file:
        return _decoded(file.read(_MAX_HEAD_BYTES), path)


def _decoded(line: bytes, source: str) -> HeadContent:
    try:
        if not line.startswith(HEAD):
            raise InvalidRecording
        # "kubectl get -o jsonpath" writes no newline.
        return decode_head(line.removesuffix(b"\n") + b"\n")[0]
    except InvalidRecording:
        raise InputError(f'{source} is not one line "# head ..." of a recording') from None


def _summary(report: Report, end: int) -> Iterator[tuple[str, str]]:
    def when(time: int) -> str:
        try:
            return f"{stamp(time * _MILLISECOND)[:-7]}Z"
        except OverflowError:
            return "an unknown time"

    info, head = report.info, report.head
    names = "/".join(info.machine[key] for key in ("namespace", "name") if key in info.machine)
    yield "recording", f"{info.id}, {'closed' if report.is_closed else 'not closed'}"
    yield "machine", f"{names or 'unnamed'}, UID {info.machine.get('uid', 'unknown')}"
    yield "time", f"{when(info.time)} to {when(max(info.time, end))}"
    yield "output", f"offset {info.first} to {head.offset} of the journal {info.epoch}"
    omitted = f", {report.omitted} of them left out" if report.omitted else ""
    yield "blocks", f"{report.blocks}{omitted}"
    yield "signed", f"by {', '.join(report.signers)}, last at {when(head.time)}"


def _play(options: argparse.Namespace) -> int:
    if not is_file(options.file):
        return _use_content(options, _answered(_play_content))
    with open(options.file, "rb") as file:
        return _play_content(options, file, "")


def _play_content(options: argparse.Namespace, file: BinaryIO, head: str) -> int:
    if not sys.stdout.isatty():
        start = options.at // _MILLISECOND if options.at else 0
        for frame in frames(file):
            if frame.code == "o" and frame.time >= start:
                sys.stdout.buffer.write(frame.data)
        sys.stdout.flush()
        return 0
    player = Player(file, speed=options.speed, idle_seconds=options.idle)
    at = options.at // _MILLISECOND if options.at else None
    return play(player, sys.stdin.fileno(), sys.stdout.fileno(), at)


def _cut(options: argparse.Namespace) -> int:
    first, last = _between(options)
    with open(options.file, "rb") as file:
        _write(options.output, excerpt(file, first // _MILLISECOND, last // _MILLISECOND))
    return 0


Object = dict[str, Any]
Use = Callable[[argparse.Namespace, BinaryIO, str], int]
"""Uses the content of a recording, and its newest head elsewhere; returns the exit code."""

_TIMEOUT_SECONDS = 30.0


def _register_list(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``list`` to the commands of ``recording``."""
    listing = server_command(
        commands, "recording", "list", "list the recordings of a cluster, the newest last", _list
    )
    add_namespace_option(listing)
    listing.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    listing.add_argument("--machine", metavar="NAME", type=object_name, help="of this machine only")


async def _list(client: CommandClient, options: argparse.Namespace) -> str:
    namespace = "" if options.all_namespaces else client.config.namespace
    selector = f"spec.machine={options.machine}" if options.machine else ""
    listed = await client.list(CONSOLERECORDINGS.resource, namespace, field_selector=selector)
    if not listed["items"]:
        hint = await missing_machine(client, options.machine, namespace) if namespace else ""
        return runner.nothing_found("recordings", namespace, hint)
    recordings = sorted(listed["items"], key=lambda each: each["metadata"]["creationTimestamp"])
    head = ["NAME", "MACHINE", "INPUT", "STATE", "BEGIN", "LENGTH", "BYTES", "USERS"]
    rows = [_row(each) for each in recordings]
    if any(each["spec"].get("policies") for each in recordings):
        head.append("POLICIES")
        for row, each in zip(rows, recordings, strict=True):
            row.append(one_line(",".join(each["spec"].get("policies", ()))) or "<none>")
    if options.all_namespaces:
        head.insert(0, "NAMESPACE")
        for row, each in zip(rows, recordings, strict=True):
            row.insert(0, one_line(each["metadata"]["namespace"]))
    return table(head, rows)


def _row(recording: Object) -> list[str]:
    spec, status = recording["spec"], recording.get("status", {})
    begin, end, size = status.get("startTime", ""), end_of(recording), size_of(recording)
    length = times.human(end - times.seconds(begin)) if begin and end is not None else ""
    values = (
        recording["metadata"]["name"],
        spec["machine"],
        spec.get("input", ""),
        state_of(recording),
        f"{times.timestamp(times.seconds(begin))[:_MINUTE]}Z" if begin else "",
        length,
        "" if size is None else size,
        ",".join(spec.get("users", ())) or spec.get("user", ""),
    )
    return [one_line(str(value)) or "<none>" for value in values]


def is_file(name: str) -> bool:
    """Return whether an argument is a file."""
    return os.sep in name or os.path.exists(name)


def _use_content(options: argparse.Namespace, use: Use) -> int:
    """Use the content of the ConsoleRecording that ``options.file`` names."""
    return runner.run_in_reactor(options.command, lambda reactor: _using(options, use, reactor))


async def _using(options: argparse.Namespace, use: Use, reactor: Any) -> int:
    from twisted_exec.api.kinds import CONSOLERECORDINGS
    from twisted_exec.cli.client import CommandClient
    from twisted_exec.tls.errors import TLSConfigError

    name = options.file
    timeout = options.request_timeout or _TIMEOUT_SECONDS
    no_file = f"there is no file {name}"
    try:
        object_name(name)
        config = config_of(options)
        client = CommandClient(config, reactor, timeout_seconds=timeout, agent="twisted-exec")
        try:
            with _temporary() as file:
                # The object first: its head is not newer than the content.
                recording = await client.get(CONSOLERECORDINGS.resource, name, config.namespace)
                try:
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
        return failed(options.command, f"{explain(refusal, config.namespace, config)}{hint}")

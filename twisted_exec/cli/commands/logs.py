"""
``twisted-exec logs``: options, and the run in a reactor.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.patterns import Pattern, PatternError, Search
from twisted_exec.api.status import APIError
from twisted_exec.api.times import NANOSECONDS, seconds, span, timestamp
from twisted_exec.cli.commands.log_output import LogOutput
from twisted_exec.cli.console.connecting import ProgressLine
from twisted_exec.cli.failures import InputError, failed
from twisted_exec.cli.machine_options import add_machine_options
from twisted_exec.cli.messages import one_line, painted, painter
from twisted_exec.cli.options import add_cluster_options, config_of
from twisted_exec.cli.runner import run_with_machine
from twisted_exec.cli.suggestion import explain_with_hint
from twisted_exec.cli.times import since_time
from twisted_exec.kube.downloads import MachineLog, deleted_log
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.streaming.text.download import Download
from twisted_exec.streaming.text.resumption import ResumedLog
from twisted_exec.tls.errors import TLSConfigError

_DESCRIPTION = """\
Print what a machine's console printed, also before anybody looked and across restarts. The
command continues when the API server is lost for up to a minute. On a terminal timestamps are dim,
and matches of --grep are highlighted, unless NO_COLOR is set. A terminal gets the text, without
escape sequences, as with --plain; a file or another program gets all bytes.
"""
_EPILOG = (
    "Exit code: 0, or 1 after an error. With --grep: 1 if no line matched, and 2 after an error."
)
_NO_MATCH, _GREP_ERROR = 1, 2  # as with grep
_TIMEOUT_SECONDS = 30.0
_STAMP_BYTES = len("2026-11-20T05:00:00.123456789Z")
_LOUD_SECONDS = 1.0
"""Shorter outages are not reported."""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``logs``."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_machine_options(parser)
    parser.add_argument(
        "--deleted",
        action="store_true",
        help="the machine was deleted; of several with that name, the one deleted last",
    )
    parser.add_argument(
        "--grep",
        metavar="RE",
        help="only lines that match this regular expression (RE2); --tail counts those",
    )
    add_line_options(parser)
    add_cluster_options(parser)
    parser.set_defaults(run=_run)


def add_line_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`log_options` reads: which lines, and in which form."""
    boots = parser.add_mutually_exclusive_group()
    boots.add_argument(
        "--boot",
        metavar="N",
        type=_boot,
        help="only one boot: 0 is the newest, -1 the one before it, a positive number is a boot's own",
    )
    boots.add_argument("-p", "--previous", action="store_true", help="the same as --boot -1")
    plain = parser.add_mutually_exclusive_group()
    plain.add_argument(
        "--plain",
        action="store_true",
        default=None,
        help="remove escape sequences and control characters; the default on a terminal, and by ssh",
    )
    plain.add_argument(
        "--no-plain",
        dest="plain",
        action="store_false",
        default=None,
        help="print all bytes, also sequences that change the terminal",
    )
    parser.add_argument(
        "--tail", metavar="LINES", type=_count, help="only the last lines, this many"
    )
    times = parser.add_mutually_exclusive_group()
    times.add_argument(
        "--since",
        metavar="TIME",
        type=since_time,
        help="only lines since this long ago, such as 30d, 12h or 1h30m, or since an RFC 3339 time",
    )
    times.add_argument(
        "--between",
        metavar=("FIRST", "LAST"),
        nargs=2,
        type=since_time,
        help="only lines between two times, each as of --since",
    )
    parser.add_argument(
        "--timestamps", action="store_true", help="begin each line with its time, in UTC"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="continue until the machine is deleted"
    )


def _failed(options: argparse.Namespace) -> int:
    return 1 if options.grep is None else _GREP_ERROR


def _boot(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 10**9
    if abs(number) >= 10**9:
        raise argparse.ArgumentTypeError(f'"{text}" is not the number of a boot, such as -1')
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of lines')
    return int(text)


def _range(options: argparse.Namespace) -> tuple[int | None, int | None]:
    """Return the times between which lines are printed, in nanoseconds since the epoch; ``None`` without one."""
    return options.between or (options.since, None)


def log_options(options: argparse.Namespace, *, is_terminal: bool = False) -> LogOptions:
    """
    Return the options of the request.

    :param is_terminal: the log is printed on a terminal, which the machine's sequences could change,
        or ask to type an answer.
    :raises InputError: the options contradict each other.
    """
    first, last = _range(options)
    if first is not None and last is not None and last < first:
        raise InputError("the second time of --between is before the first")
    if last is not None and options.follow:
        raise InputError("--between has an end: omit --follow")
    return LogOptions(
        follow=options.follow,
        timestamps=options.timestamps,
        tail_lines=options.tail,
        since_nanoseconds=first,
        until_nanoseconds=last,
        boot=-1 if options.previous else options.boot,
        plain=is_terminal if options.plain is None else options.plain,
        frames=True,
    )


def _run(options: argparse.Namespace) -> int:
    return run_with_machine("logs", options, _print_log, _failed(options))


async def _print_log(options: argparse.Namespace, reactor: Any) -> int:
    progress: ProgressLine | None = None
    outages = _OutageReport(reactor)

    def answered(_: object = None) -> None:
        if progress is not None:
            progress.stop()

    try:
        if options.deleted and options.follow:
            raise InputError("a deleted machine prints nothing more: omit --follow")
        search = _search(options)
        query = log_options(options, is_terminal=sys.stdout.isatty())
        config = config_of(options)
        output = _output(options, search)
        more: Any = {
            "timeout_seconds": options.request_timeout or _TIMEOUT_SECONDS,
            "agent": "twisted-exec logs",
            "lost": outages.changed,
            "since_option": "--since",
        }
        name, namespace = options.machine.name, config.namespace
        first = _range(options)[0]
        if first is not None and first > time.time_ns() and options.tail != 0:
            # No error: the clock of the machine's host may be ahead, and --follow waits.
            option = "--between" if options.between else "--since"
            future = timestamp(first / NANOSECONDS)
            failed("logs", f"the time of {option} is in the future: {future}", 0)
        progress = ProgressLine.on_stderr(
            reactor, lambda seconds: f"asking {config.server} for the log of {name}, {seconds} s"
        )
        if options.deleted:
            log = await deleted_log(config, namespace, name, reactor, **more)
        else:
            log = MachineLog(config, namespace, name, reactor, among=options.among, **more)
        try:
            if search is not None and options.tail:
                await _read_last_matches(log, query, output, answered)
            else:
                await log.read(query, output.feed, answered)
            if output.is_empty and _range(options)[0] is not None and options.tail != 0:
                failed("logs", await _other_times(log, query), 0)
        finally:
            answered()
            outages.stop()
            output.finish()
    except (InputError, KubeConfigError, TLSConfigError) as problem:
        return failed("logs", str(problem), _failed(options))
    except APIError as refusal:
        message = await explain_with_hint(refusal, config, name, reactor, "read the log of")
        is_missing = refusal.code == 404 and refusal.details.get("name") == name
        if is_missing and not options.deleted:
            joint = " If" if message.endswith("?") else "; if"
            message += f"{joint} the machine was deleted, add --deleted"
        return failed("logs", message, _failed(options))
    except BrokenPipeError:  # twisted-exec logs ... | head
        return _failed(options)
    return 0 if search is None or output.matches else _NO_MATCH


async def _other_times(log: MachineLog, query: LogOptions) -> str:
    """Return a message about a range of time without output: which times the log has, if that can be read."""
    message, stamps = "nothing was printed in this time", []
    for tail in (None, 1):
        text = bytearray()
        wanted = LogOptions(
            timestamps=True, tail_lines=tail, limit_bytes=_STAMP_BYTES, boot=query.boot
        )
        try:
            await log.read(wanted, text.extend)
            stamps.append(seconds(text[:_STAMP_BYTES].decode("ascii", "replace")))
        except (APIError, ValueError):  # without a line there is no time
            return message
    return f"{message}; there are lines {span(*stamps)}"


async def _read_last_matches(
    log: MachineLog, query: LogOptions, output: LogOutput, answered: Callable[[], None]
) -> None:
    """Read the whole log for its last matching lines, and then follow it if the user wants that."""
    existing: list[Download | ResumedLog] = []

    def opened(each: Download | ResumedLog) -> None:
        answered()
        existing.append(each)

    await log.read(replace(query, follow=False, tail_lines=None), output.feed, opened)
    output.release()
    if not query.follow:
        return
    rest = replace(query, tail_lines=0)
    # Only the server knows whether a boot with a number is the newest, and continues.
    if isinstance(existing[0], ResumedLog) and not query.boot:
        rest = existing[0].following()
    await log.read(rest, output.feed)


def _search(options: argparse.Namespace) -> Search | None:
    if options.grep is None:
        return None
    try:
        return Search(Pattern(options.grep, is_regex=True))
    except PatternError as problem:
        raise InputError(f"--grep: {problem}") from None


def _output(options: argparse.Namespace, search: Search | None) -> LogOutput:
    stream = sys.stdout.buffer

    def write(data: bytes) -> None:
        # Blocking writes: a slow reader pauses this program and so the server; nothing is buffered here.
        stream.write(data)
        stream.flush()

    return LogOutput(
        write,
        search,
        last=options.tail or None,
        has_timestamps=options.timestamps,
        has_colours=painter(sys.stdout) is painted,
        ends_line=sys.stdout.isatty(),
    )


class _OutageReport:
    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._soon: Any = None
        self._is_told = False

    def changed(self, why: str | None) -> None:
        self.stop()
        if why is not None:
            self._soon = self._reactor.callLater(_LOUD_SECONDS, self._lost, why)
        elif self._is_told:
            self._is_told = False
            self._print("open again")

    def stop(self) -> None:
        soon, self._soon = self._soon, None
        if soon is not None and soon.active():
            soon.cancel()

    def _lost(self, why: str) -> None:
        self._is_told = True
        self._print(f"{one_line(why)}; trying again")

    def _print(self, line: str) -> None:
        print(f"twisted-exec logs: {line}", file=sys.stderr)

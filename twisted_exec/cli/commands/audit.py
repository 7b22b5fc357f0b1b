"""
``twisted-exec audit``: options, and the answers as tables or JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from twisted_exec.api.display import display_name, listed
from twisted_exec.api.times import NANOSECONDS
from twisted_exec.cli.commands.audit_sessions import (
    READS,
    AuditedSession,
    AuditFileError,
    AuditRecord,
    Damage,
    collect,
    read_records,
)
from twisted_exec.cli.failures import failed
from twisted_exec.cli.table import table
from twisted_exec.cli.times import since_time

_DEFAULT_FILE = os.path.join("exec-state", "audit.jsonl")
_WHO = """\
Print which users were on a machine's console: who typed, how long, from which address and for which
declared reason. The command reads audit files, not the API server.
"""
_SESSIONS = "Print the sessions of a user at all machines, from audit files."
_EPILOG = """\
Give the files of all API servers, and of the runtimes: only a runtime's file tells typed input from
the framing of the stream. Old files (FILE.1, FILE.2.gz) are read, too. Lines that are no records are
counted on standard error.
"""
NO_END = "no end recorded"
"""In the column END: the session is open, or a program was killed before it could write the end."""
_CONTENT = "content"
_LONGEST_CAUSE = 60
_MOST_NAMES = 10
_DROVE = {True: "yes", False: "no", None: "?"}


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``audit``."""
    parser.description = "Answer questions from audit files."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    who = commands.add_parser(
        "who",
        help="print which users were on a machine's console",
        description=_WHO,
        epilog=_EPILOG,
    )
    who.add_argument("audited", metavar="MACHINE", help="the name of the machine")
    who.set_defaults(run=_who)
    sessions = commands.add_parser(
        "sessions", help="print the sessions of a user", description=_SESSIONS, epilog=_EPILOG
    )
    user = sessions.add_mutually_exclusive_group(required=True)
    user.add_argument(
        "user",
        metavar="USER",
        nargs="?",
        default=argparse.SUPPRESS,  # None would replace the value of --user
        help="the user, or the proxy or user that acted for another user",
    )
    user.add_argument("--user", help="the same as USER")
    sessions.set_defaults(run=_sessions)
    for each in (who, sessions):
        _add_options(each)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", help="only machines of this namespace")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=since_time,
        help="only sessions that were open at or after this long ago, such as 7d or 12h, or an RFC "
        "3339 time",
    )
    parser.add_argument(
        "--file",
        metavar="FILE",
        action="append",
        help=f"an audit file, or - for standard input; may be repeated (default: {_DEFAULT_FILE})",
    )
    parser.add_argument(
        "--logs",
        action="store_true",
        help="also readers of the console's log, screen and recordings",
    )
    parser.add_argument("--refused", action="store_true", help="also sessions that were refused")
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="the format of the output (default: %(default)s)",
    )


def _who(options: argparse.Namespace) -> int:
    return _answer(options, "machine", options.audited, lambda record: [record.text("machine")])


def _sessions(options: argparse.Namespace) -> int:
    return _answer(
        options, "user", options.user, lambda record: [record.text("user"), record.text("caller")]
    )


def _answer(
    options: argparse.Namespace,
    noun: str,
    name: str,
    names_of: Callable[[AuditRecord], Sequence[str]],
) -> int:
    """
    Print the sessions of a machine or a user.

    :param names_of: returns the names of the machine, or of the users, of a record.
    """
    known: set[str] = set()

    def is_selected(record: AuditRecord) -> bool:
        names = names_of(record)
        if (
            record.text("subresource") != _CONTENT
        ):  # of a recording, whose name is none of a machine
            known.update(names)
        if options.namespace and record.text("namespace") != options.namespace:
            return False
        if not options.logs and record.text("subresource") in READS:
            return False
        return name in names

    since = options.since
    if since is not None:
        since = datetime.fromtimestamp(since / NANOSECONDS, UTC)
    damage = Damage()
    try:
        records = _all_records(options.file or [_DEFAULT_FILE], damage)
        sessions = collect(records, is_selected, since)
    except AuditFileError as problem:
        hint = (
            ""
            if options.file
            else "; it is in the state directory of the server: give it with --file"
        )
        return failed("audit", f"{problem}{hint}")
    if not options.refused:
        sessions = [session for session in sessions if not session.code]
    if options.output == "json":
        print(json.dumps([session.as_json() for session in sessions], indent=2))
    elif sessions:
        sys.stdout.write(_table(sessions))
    if not sessions and (options.output == "table" or name not in known):
        print(_nothing(noun, name, known - {""}), file=sys.stderr)
    _report(damage)
    return 0


def _nothing(noun: str, name: str, known: set[str]) -> str:
    """Return why there is no session: the name is not in the files, or its sessions are not selected."""
    if name in known:
        return f'No such session of {noun} "{name}" in these files.'
    others = listed(map(display_name, sorted(known)), _MOST_NAMES)
    return f'These files know no {noun} "{name}"; they have {others or f"no {noun}"}.'


def _all_records(paths: Iterable[str], damage: Damage) -> Iterator[AuditRecord]:
    for path in dict.fromkeys(paths):
        yield from read_records(path, damage)


def _table(sessions: Sequence[AuditedSession]) -> str:
    rows = [_row(session) for session in sessions]
    headings = (
        "USER",
        "MACHINE",
        "DROVE",
        "STARTED",
        "DURATION",
        "FROM",
        "REASON",
        "END",
        "SESSION",
    )
    return table(headings, rows)


def _row(session: AuditedSession) -> tuple[str, ...]:
    user = session.text("user")
    if session.caller:
        user += f" (by {session.caller})"
    namespace, machine = session.text("namespace"), session.text("machine")
    cause = session.cause
    if len(cause) > _LONGEST_CAUSE:
        cause = f"{cause[: _LONGEST_CAUSE - 3]}..."
    return (
        user,
        f"{namespace}/{machine}" if namespace else machine,
        _DROVE[session.drove],
        session.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "?" if session.ended is None else _duration(session.seconds),
        session.place,
        session.text("declared_reason"),
        NO_END if session.ended is None else cause,
        session.key[0],
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _report(damage: Damage) -> None:
    if not damage.count:
        return
    noun = "line is no record" if damage.count == 1 else "lines are no records"
    failed("audit", f"{damage.count} {noun} and did not count:")
    for each in damage.named:
        print(f"  {each}", file=sys.stderr)
    if damage.count > len(damage.named):
        print(f"  and {damage.count - len(damage.named)} more", file=sys.stderr)

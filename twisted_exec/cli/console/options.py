"""
The command line of ``kubectl console``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from twisted_exec import build
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.reasons import check_reason
from twisted_exec.api.status import BadRequest
from twisted_exec.cli.cluster_options import add_cluster_options, duration
from twisted_exec.cli.console.escape import DEFAULT, Escapes, parse_escape
from twisted_exec.cli.console.messages import one_line
from twisted_exec.cli.console.script_options import EPILOG, add_script_options, script_problem
from twisted_exec.cli.fleet.options import add_fleet_options, fleet_problem
from twisted_exec.cli.machine_options import (
    add_namespace_option,
    machine_name,
    possible_dialects,
)
from twisted_exec.cli.space.options import add_space_options, requires_space
from twisted_exec.wire.session_terms import RECORDED_INPUT

_MASKED = RECORDED_INPUT[1]
_DESCRIPTION = """\
Open the serial console of a machine in this terminal. Every key goes to the
machine, Ctrl-C too; Ctrl-] leaves, and ~? lists other commands, such as BREAK.
As in ssh, ~ is special only at the start of a line, right after Enter. One user
at a time is the writer of a console; other users are observers: they see the
output and read who the writer is.

If the connection is lost, the program connects again and the session goes on
where it was; what you type meanwhile is sent then.

If standard input is not a terminal, it is sent to the machine. After its end the
session continues until the machine has been quiet for two seconds, or for the
time of --linger, or until its process has ended, and in any case for at most a
minute. --timeout replaces that minute.

With --expect, --send or --run, standard input is not read: the options have the
input.
"""

_EPILOG = f"""\
Exit code: 0 if the session ended well (also by the escape key and after
--linger); the process's code if a shell or another process ended; 124 after the
time of --timeout; 1 after any other end. One line on stderr says why.

{EPILOG}
With TWISTED_EXEC_LOG=FILE in the environment the program writes a log.
"""


DEFAULT_LOST_AFTER = "20s"
LEAST_SILENCE_SECONDS = 5.0


class Parser(argparse.ArgumentParser):
    """
    Reports errors in one line.

    :cvar failure_code: the exit code of an error.
    """

    failure_code = 1

    def error(self, message: str) -> NoReturn:
        self.exit(self.failure_code, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """
    Read the command line.

    :raises SystemExit: 0 after ``--help``, 1 (125 for scripts) after an error message of one line.
    """
    parser = make_parser()
    options = parser.parse_args(argv)
    if wrong := fleet_problem(options):
        parser.error(wrong)
    options.name = options.machine.name if options.machine is not None else ""
    try:
        options.among = possible_dialects(options)
    except ValueError as problem:
        parser.error(str(problem))
    if not options.space and (wrong := requires_space(options)):
        parser.error(f"{wrong} goes with --space")
    if options.space and options.request:
        parser.error("--request does not go with --space: use a kubeconfig of the space")
    if wrong := script_problem(options):
        parser.error(wrong)
    if wrong := _web_problem(options, parser):
        parser.error(wrong)
    return options


NOW, START = "now", "start"
"""Where the output of a session begins."""

_TERMINAL = {
    "record": "--record",
    "record_input": "--record-input",
    "reason": "--reason",
    "request": "--request",
    "raw": "--raw",
    "first_output": "--from",
    "escape": "--escape",
    "linger": "--linger",
    "timeout": "--timeout",
    "quiet": "--quiet",
    "read_only": "--read-only",
    "force": "--force",
    "no_resume": "--no-resume",
    "lost_after": "--lost-after",
    "steps": "--expect and --send",
    "script_command": "--run",
    "selector": "-l",
    "all_machines": "--all",
    "space": "--space",
}
"""Options of a session in this terminal, or of a machine that the page does not know."""


def _web_problem(options: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """Return why ``--web`` does not go with the other options; empty if it does."""
    if not options.web:
        return ""
    bare = parser.parse_args([])
    for key, name in _TERMINAL.items():
        if str(getattr(options, key)) != str(getattr(bare, key)):
            return f"{name} does not go with --web: choose it in the page"
    return ""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="kubectl console",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "machine",
        metavar="NAME",
        nargs="?",
        type=machine_name,
        help="the machine; or KIND/NAME, such as instances/NAME, if the API server has several kinds "
        "of machines",
    )
    parser.add_argument(
        "--dialect",
        choices=[dialect.name for dialect in DIALECTS],
        help="the API of the machine, if there are several machines of that name "
        "(default: that of the first one found)",
    )
    add_namespace_option(parser)
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        type=_reason,
        default="",
        help="the reason for the session, such as a ticket's number; audit records have it, and "
        "policies may require it",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="record the console while it has sessions; the session is refused if that is not "
        "possible; see 'twisted-exec recording'",
    )
    parser.add_argument(
        "--record-input",
        metavar="INPUT",
        choices=RECORDED_INPUT,
        help="record also the input, which implies --record: none, masked (only what the machine "
        "echoed; the default), or all, with passwords",
    )
    parser.add_argument(
        "--request",
        action="store_true",
        help="ask another user for the approval that a policy requires, wait for it, and open the "
        "console; the request remains if you leave earlier",
    )
    parser.add_argument(
        "--web",
        action="store_true",
        help="open the console in your browser, with these credentials, as 'twisted-exec web NAME' "
        "does",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="the same as --from start; with --no-resume, and at runtimes that render no screens, this is "
        "the default",
    )
    parser.add_argument(
        "--from",
        dest="first_output",
        choices=(NOW, START),
        help="begin with new output (now), or with up to 256 KiB that the machine printed before "
        "(start); the default is now if input is not a terminal, and the machine's present screen otherwise",
    )
    add_session_options(parser)
    add_loss_options(parser)
    add_script_options(parser)
    add_fleet_options(parser)
    parser.add_argument("--version", action="version", version=f"%(prog)s {build()}")
    add_space_options(parser)
    add_cluster_options(parser)
    return parser


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :class:`Program` needs."""
    parser.add_argument(
        "--escape",
        metavar="KEY",
        type=_escape,
        default=DEFAULT,
        help="the control key that leaves, as ^], ctrl-] or C-], or the character that begins a "
        "command right after Enter, as ~, or both, separated by a comma (default: ^],~), or "
        "none; choose another key to send this one to the machine",
    )
    parser.add_argument(
        "--linger",
        metavar="TIME",
        type=_duration,
        help="after the end of input, continue until the machine has been quiet for this time, such "
        "as 2 (seconds) or 1m",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=_duration,
        help="end the whole session after this time, such as 30 (seconds) or 5m, with exit code "
        "124; 0 means never, also if input is not a terminal",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print no messages about the connection, only errors",
    )
    role = parser.add_mutually_exclusive_group()
    role.add_argument(
        "--read-only",
        action="store_true",
        help="be an observer: neither input nor the window's size reaches the machine",
    )
    role.add_argument(
        "--force",
        action="store_true",
        help="take over from the writer, who becomes an observer and reads who took over",
    )


def add_loss_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a lost connection."""
    parser.add_argument(
        "--no-resume",
        action="store_true",
        help="end the session when its connection is lost, instead of connecting again",
    )
    parser.add_argument(
        "--lost-after",
        metavar="TIME",
        type=_silence,
        default=DEFAULT_LOST_AFTER,
        help="treat a connection as lost if the server has sent nothing for this time; at least "
        f"{LEAST_SILENCE_SECONDS:.0f}s (default: {DEFAULT_LOST_AFTER})",
    )


def recorded_input_of(options: argparse.Namespace) -> str:
    """Return the input to record; empty for no recording."""
    recorded: str = getattr(options, "record_input", None) or ""
    return recorded or (_MASKED if getattr(options, "record", False) else "")


def _silence(text: str) -> float:
    seconds = _duration(text)
    if seconds < LEAST_SILENCE_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too short: the server may need a moment to answer, so the least is "
            f"{LEAST_SILENCE_SECONDS:.0f}s"
        )
    return seconds


def _reason(text: str) -> str:
    try:
        return check_reason(text)
    except BadRequest as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _escape(text: str) -> Escapes | None:
    try:
        return parse_escape(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _duration(text: str) -> float:
    return duration(text) or 0.0

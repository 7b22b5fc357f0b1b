"""
The command line of ``kubectl console``.

As all modules that a command line needs, this module imports little.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NoReturn

from twisted_exec import build
from twisted_exec.api.declared_reasons import check_reason
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.status import BadRequest
from twisted_exec.cli.console.escape import DEFAULT, Escapes, parse_escape
from twisted_exec.cli.machine_options import (
    add_namespace_option,
    kind_and_name,
    machine_name,
    possible_dialects,
)
from twisted_exec.cli.messages import FAILED_CODE, for_stderr
from twisted_exec.cli.options import add_cluster_options, add_space_options, requires_space
from twisted_exec.cli.parser import CheckedParser, VersionAction
from twisted_exec.cli.times import duration
from twisted_exec.wire.session_terms import RECORDED_INPUT

EPILOG = """\
With --expect, --send and --run: 0 if everything was matched and sent, or the
code of the command; 122 if --run found no prompt of a shell, and did not type
the command (the machine asks for a login or an answer, is in its boot loader or
a full-screen program, or does not answer); 123 if another user is the writer,
or another --run has the shell, or its command goes on; 124 after the time
limit; 125 if the session failed.
"""

_ESCAPES = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"e": b"\x1b", b"\\": b"\\"}
"""What stands behind a backslash in the text of ``--send``, and its bytes."""
_SCRIPTED = ("--expect", "--send", "--run")


def _add_script_options(parser: argparse.ArgumentParser) -> None:
    script = parser.add_argument_group("scripts")
    script.add_argument(
        "--expect",
        dest="steps",
        metavar="RE",
        action=_Step,
        default=(),
        help="wait until the machine prints text that matches this regular expression (RE2); may be "
        "given several times, also between --send; the exit code is 124 if none comes in time",
    )
    script.add_argument(
        "--send",
        dest="steps",
        metavar="TEXT",
        action=_Step,
        default=(),
        help="type this text; \\r is the Enter key, and \\n, \\t, \\e, \\\\ and \\xHH stand for "
        "their characters",
    )
    script.add_argument(
        "--run",
        action=_Run,
        dest="script_command",
        metavar="COMMAND",
        help="run this command in the shell that waits at the machine's prompt, print its output "
        "alone, and exit with its code",
    )


class _Run(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if namespace.script_command is not None:
            raise argparse.ArgumentError(
                self, "it is given twice: join the commands as in --run 'A; B'"
            )
        namespace.script_command = values


class _Step(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(values, str)
        try:
            step = _step(self.option_strings[0], values)
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        namespace.steps = (*namespace.steps, step)


def _step(option: str, text: str) -> Any:
    if option == "--send":
        return unescaped(text)
    from twisted_exec.api.patterns import Pattern, Search

    try:
        return text, Search(Pattern(text, is_regex=True))
    except ValueError as error:
        raise ValueError(
            f'"{text}" cannot be used as a regular expression (RE2): {error}'
        ) from None


def unescaped(text: str) -> bytes:
    r"""
    Return the bytes of a text with ``\r``, ``\n``, ``\t``, ``\e``, ``\\`` and ``\xHH``.

    :raises ValueError: there is another escape; the message is for the user.
    """

    def one(match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return bytes([int(match[1], 16)])
        if match[2] not in _ESCAPES:
            escapes = r"\r, \n, \t, \e, \\ and \xHH"
            raise ValueError(
                f"\\{match[2].decode('utf-8', 'replace')} is no escape: there are {escapes}"
            )
        return _ESCAPES[match[2]]

    pattern = rb"\\(?:x([0-9A-Fa-f]{2})|(.?))"
    return re.sub(pattern, one, text.encode("utf-8", "surrogateescape"), flags=re.DOTALL)


def script_problem(options: argparse.Namespace) -> str:
    """Return why the script of a command line cannot run, or an empty string."""
    if options.script_command is not None and options.steps:
        return "--run goes without --expect and --send: give the command, or the steps"
    types = options.script_command is not None or any(
        isinstance(step, bytes) for step in options.steps
    )
    if types and options.read_only:
        return "--read-only goes without --send and --run: an observer cannot type"
    if options.script_command is None:
        return ""
    from twisted_exec.wire.shell_run import command_lines

    if not options.script_command.strip():
        return "--run has no command: give one, such as --run 'uname -a'"
    try:
        command_lines(options.script_command, "0" * 16)
    except ValueError as error:
        return str(error)
    return ""


def has_script(options: argparse.Namespace) -> bool:
    """Return whether a script types instead of the user."""
    return options.script_command is not None or bool(options.steps)


def failure_code(arguments: Sequence[str]) -> int:
    """Return the exit code for errors before a session."""
    is_script = any(each.partition("=")[0] in _SCRIPTED for each in arguments)
    return FAILED_CODE if is_script else 1


_MASKED = RECORDED_INPUT[1]
_SUMMARY = """\
Open the serial console of a machine in this terminal. Every key goes to the
machine; Ctrl-] leaves, and ~? right after Enter lists the other commands.
"""
_DESCRIPTION = """\
Open the serial console of a machine in this terminal. Every key goes to the
machine, Ctrl-C too; Ctrl-] leaves, and ~? lists other commands, such as BREAK.
As in ssh, ~ is special only at the start of a line, right after Enter. One user
at a time is the writer of a console; other users are observers: they see the
output and read who the writer is.

If the connection is lost, the program connects again and the session goes on
where it was; what you type meanwhile is sent then.

If standard input is not a terminal, it is sent to the machine. After its end
the session continues until the machine has been quiet for two seconds, or for
the time of --linger, or until its process has ended, and in any case for at
most a minute, or a minute and the time of --linger. --timeout replaces that
limit.

With --expect, --send or --run, standard input is not read: the options have the
input.
"""

_EPILOG = f"""\
Exit code: 0 if the session ended well (also by the escape key and after
--linger); the process's code if a shell or another process ended; 124 after the
time of --timeout, or if the machine was never quiet after the end of input; 1
after any other end. One line on stderr says why.

{EPILOG}
With TWISTED_EXEC_LOG=FILE in the environment the program writes a log.
"""


DEFAULT_LOST_AFTER = "20s"
LEAST_SILENCE_SECONDS = 5.0


class Parser(CheckedParser):
    """
    Reports errors in one line.

    :cvar failure_code: the exit code of an error.
    """

    failure_code = 1
    other_names = {"observe": "read-only", "observer": "read-only"}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments, with what the user may have meant."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(options, unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(self.failure_code, f"{for_stderr(self.error_line(message))}\n")


_TERMINAL_OPTIONS = frozenset({"-i", "-t", "-it", "-ti", "--stdin", "--tty"})
"""Options of ``kubectl exec`` and ``kubectl attach``."""


def _meant(options: argparse.Namespace, unknown: Sequence[str]) -> str:
    for_terminal = list(takewhile(_TERMINAL_OPTIONS.__contains__, unknown))
    unknown = unknown[len(for_terminal) :]
    if not unknown:
        return f"; a console needs no {' '.join(for_terminal)}"
    if for_terminal and unknown[0] == "--":
        unknown = unknown[1:] or unknown
    if meant := kind_and_name(options, unknown):
        return meant
    words, name = " ".join(unknown), "" if options.machine is None else options.machine.name
    if options.script_command is not None and not unknown[0].startswith("--"):
        command = shlex.quote(f"{options.script_command} {words}")
        return f'; the NAME is "{name}"; quote a command of several words: --run {command}'
    if unknown[0].startswith("-"):
        return ""
    if options.steps:
        return f"; the NAME is \"{name}\"; quote a text of several words, as in --send 'a b\\r'"
    # ssh and kubectl exec take the words of a command after the name.
    return (
        "; give one NAME or KIND/NAME; -l and --all select several machines; to run a command: "
        f"--run {shlex.quote(words)}"
    )


_MOST_USED = {
    "--namespace": "of the machine, instead of the context's",
    "--read-only": "be an observer: what you type is not sent",
    "--force": "take over from the present writer",
    "--from": "begin with new output, or with earlier output",
    "--run": "run a command in the machine's shell",
    "--reason": "such as a ticket's number, for audit records",
    "--record": "record the console while it has sessions",
    "--selector": "instead of NAME: machines with these labels",
    "--web": "open the console in your browser",
    "--help-all": "all options, and the exit codes",
}


class _ShortHelp(argparse.Action):
    """Prints the most used options; ``--help-all`` has all of them."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(
            option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, CheckedParser)
        actions = {name: each for each in parser.arguments for name in each.option_strings}
        lines = [f"{parser.format_usage()}\n{_SUMMARY}"]
        for option, text in _MOST_USED.items():
            action = actions[option]
            value = action.metavar or "|".join(action.choices or (action.dest.upper(),))
            name = ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")
            lines.append(f"  {name:<27} {text}")
        print("\n".join(lines), flush=True)
        parser.exit()


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """
    Read the command line.

    :raises SystemExit: after options such as ``--help``, and after an error message of one line.
    """
    parser = make_parser()
    options = parser.parse_args(argv)
    if wrong := _ssh_problem(options, parser) or _fleet_problem(options):
        parser.error(wrong)
    options.name = options.machine.name if options.machine is not None else ""
    try:
        options.among = possible_dialects(options)
    except ValueError as problem:
        parser.error(str(problem))
    if not options.space and (wrong := requires_space(options)):
        parser.error(f"{wrong} goes with --space")
    if options.raw and options.first_output == NOW:
        parser.error("--raw is the same as --from start: give one of --raw and --from now")
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
    "no_presence": "--no-presence",
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
    if not options.web:
        return ""
    bare = parser.parse_args([])
    for key, name in _TERMINAL.items():
        if str(getattr(options, key)) != str(getattr(bare, key)):
            return f"{name} does not go with --web: choose it in the page"
    return ""


_IN_SSH_CONFIG = frozenset({"kubeconfig", "context", "namespace", "ssh_config"})


def _ssh_problem(options: argparse.Namespace, parser: CheckedParser) -> str:
    if not options.ssh_config:
        return ""
    bare = parser.parse_args(["--ssh-config"])
    for key, value in vars(options).items():
        if key in _IN_SSH_CONFIG or str(value) == str(vars(bare)[key]):
            continue
        names = (each.option_strings for each in parser.arguments if each.dest == key)
        name = next((each[-1] for each in names if each), "NAME")
        return f"{name} does not go with --ssh-config: it takes --kubeconfig, --context and -n"
    return ""


def make_parser() -> CheckedParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="kubectl console",
        usage="%(prog)s [options] NAME",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "-h", "--help", action=_ShortHelp, help="show the most used options and exit"
    )
    parser.add_argument("--help-all", action="help", help="show this help message and exit")
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
    _add_record_options(parser)
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
        "--ssh-config",
        action="store_true",
        help="instead of NAME: print a block for ~/.ssh/config, with which ssh NAME.console opens the console "
        "with these credentials",
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
    parser.add_argument(
        "--no-presence",
        action="store_true",
        help="do not tell who joins and leaves the console",
    )
    add_session_options(parser)
    _add_loss_options(parser)
    _add_script_options(parser)
    _add_fleet_options(parser)
    parser.add_argument("--version", action=VersionAction, version=build())
    add_space_options(parser)
    add_cluster_options(parser)
    return parser


def _add_record_options(parser: argparse.ArgumentParser) -> None:
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


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :class:`~twisted_exec.cli.console.program.ConsoleProgram` needs."""
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
        "as 2 (seconds) or 1m; a machine that is never quiet ends it a minute later, with exit code 124, "
        "unless --timeout says otherwise",
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


def _add_loss_options(parser: argparse.ArgumentParser) -> None:
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
            f'"{text}" is too short: the server may need a moment to answer, so the least is '
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


DEFAULT_TAIL = 10

_SINGLE = {
    "request": "--request",
    "steps": "--expect or --send",
    "linger": "--linger",
    "no_resume": "--no-resume",
    "no_presence": "--no-presence",
}
"""Options that go with one machine only."""


def _add_fleet_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("many machines")
    group.add_argument(
        "-l",
        "--selector",
        metavar="SELECTOR",
        default="",
        help="instead of NAME: all machines with these labels, such as app=web,tier!=test; at most 500",
    )
    group.add_argument(
        "--all", dest="all_machines", action="store_true", help="instead of NAME: all machines"
    )
    group.add_argument(
        "-A", "--all-namespaces", action="store_true", help="select in all namespaces"
    )
    group.add_argument(
        "--tail",
        metavar="LINES",
        type=_count,
        help=f"begin with this many lines of each machine (default: {DEFAULT_TAIL})",
    )
    group.add_argument(
        "--state",
        metavar="FILE",
        help="continue where the last run with this file ended, and write the progress into it",
    )
    group.add_argument(
        "--colours",
        action="store_true",
        help="keep the colours of the machines; all other escape sequences are always removed",
    )
    group.add_argument(
        "--tiled",
        action="store_true",
        help="show the screens of the machines side by side, instead of their lines; ? lists the keys",
    )


def is_fleet(options: argparse.Namespace) -> bool:
    """Return whether the command line selects many machines."""
    return bool(options.selector or options.all_machines)


def _fleet_problem(options: argparse.Namespace) -> str:
    is_many, is_one = is_fleet(options), options.machine is not None
    runs = options.script_command is not None
    types = options.tiled or runs
    of_lines = {
        "--tail": options.tail is not None,
        "--state": options.state,
        "--colours": options.colours,
    }
    of_many = {"-A": options.all_namespaces, **of_lines, "--tiled": options.tiled}
    many = next((name for name, value in of_many.items() if value), "")
    single = next((name for key, name in _SINGLE.items() if getattr(options, key)), "")
    lines = next((name for name, value in of_lines.items() if value), "")
    problems = (
        (
            many and not is_many,
            f"{many} is for many machines: give -l SELECTOR or --all instead of NAME, or leave {many} out",
        ),
        (
            not (is_many or is_one or options.ssh_config),
            "give the NAME of a machine, or select machines with -l or --all",
        ),
        (
            is_many and is_one,
            "NAME is one machine, -l and --all select many: give one of these",
        ),
        (
            options.selector and options.all_machines,
            "-l selects machines, and --all takes all of them: give one of the two",
        ),
        (
            options.all_namespaces and options.namespace,
            "-n names a namespace, and -A takes all of them: give one of the two",
        ),
        (
            is_many and single,
            f"{single} is for one machine: give its NAME instead of -l or --all, or leave {single} out",
        ),
        (options.tiled and runs, "give either --tiled or --run"),
        (lines and types, f"{lines} goes without --tiled and --run"),
        (
            is_many and options.force and not types,
            "--force goes with --tiled or --run: otherwise nothing is typed",
        ),
        (
            is_many and (options.record or options.record_input) and not types,
            "--record goes with --tiled or --run: logs are read without a session",
        ),
    )
    return next((text for is_wrong, text in problems if is_wrong), "")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of lines, such as 100')
    return int(text)

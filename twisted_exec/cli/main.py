"""
``twisted-exec``: all user commands except the console.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from twisted_exec import build
from twisted_exec.cli.commands import audit as audit
from twisted_exec.cli.commands import completion as completion
from twisted_exec.cli.commands import doctor as doctor
from twisted_exec.cli.commands import iri as iri
from twisted_exec.cli.commands import logs as logs
from twisted_exec.cli.commands import man, pki, request, store, token
from twisted_exec.cli.commands import recording as recording
from twisted_exec.cli.commands import screen as screen
from twisted_exec.cli.commands import space as space
from twisted_exec.cli.commands import web as web
from twisted_exec.cli.messages import for_stderr, output_failure, say
from twisted_exec.cli.options import CheckedParser, VersionAction, nearest

_EPILOG = """\
Exit code: 0 after success, and 1 after an error, with one line about it on stderr. A few commands
have more codes; their --help lists them. Ctrl-C ends a command with 130.
"""

_UNKNOWN = re.compile(
    r"""argument COMMAND: invalid choice: ['"](?P<word>.*)['"] \(choose from (?P<there>.*)\)"""
)
"""argparse's message about a command that does not exist."""


class _Parser(CheckedParser):
    error_code = 1

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments in the command's own parser."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        if unknown := _UNKNOWN.fullmatch(message):
            message = self._no_command(unknown["word"], re.findall(r"[\w-]+", unknown["there"]))
        self.exit(self.error_code, f"{for_stderr(self.error_line(message))}\n")

    def _no_command(self, word: str, there: Sequence[str]) -> str:
        near = nearest(word, [*there, "console"])
        hint = f"; did you mean {near}?" if near else f"; there are {', '.join(there)}"
        if near == "console":
            hint = "; kubectl console NAME opens a console"
        return f'there is no command "{word}"{hint}'


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the program; return the exit code.

    :param argv: the arguments, without the program's name.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == [completion.COMPLETE]:
        return completion.answer(arguments[1:], make_parser)
    _Parser.error_code = logs.error_code(arguments)
    try:
        options = make_parser().parse_args(arguments)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # commands clean up
        code = int(options.run(options))
        if sys.stdout is not None:  # it is None if it was closed before the start
            sys.stdout.flush()  # an error at the interpreter's exit would have no message
        return code
    except BrokenPipeError:  # twisted-exec ... | head
        return 1
    except OSError as error:
        if not (why := output_failure(error)):
            raise
        say(f"twisted-exec: {why}")
        return _Parser.error_code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def make_parser() -> CheckedParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="twisted-exec",
        description="Tools for users and operators. kubectl console NAME opens a console.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action=VersionAction, version=build())
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    pki.register(commands)
    iri.register(commands)
    token.register(commands)
    request.register(commands)
    space.register(commands)
    store.register(commands)
    logs.register(commands)
    screen.register(commands)
    audit.register(commands)
    recording.register(commands)
    web.register(commands)
    doctor.register(commands)
    completion.register(commands)
    man.register(commands, make_parser)
    return parser

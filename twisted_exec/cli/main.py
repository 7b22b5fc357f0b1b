"""
``twisted-exec``: all user commands except the console.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from twisted_exec.cli.commands.registry import CommandParser, command_of, load, make_parser
from twisted_exec.cli.failures import crashed
from twisted_exec.cli.messages import output_failure, say

COMPLETE = "__complete"
"""Called by completion scripts; not in the help."""

_GREP_ERROR = 2
"""Exit code after an error of ``logs --grep``, as with grep: 1 says that no line matched."""


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the program; return the exit code.

    :param argv: the arguments, without the program's name.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == [COMPLETE]:
        return int(load("completion").answer(arguments[1:]))
    command = command_of(arguments)
    CommandParser.error_code = _error_code(arguments)
    try:
        options = make_parser([command]).parse_args(arguments)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # commands clean up
        code = int(options.run(options))
        if sys.stdout is not None:  # it is None if it was closed before the start
            sys.stdout.flush()  # an error at the interpreter's exit would have no message
        return code
    except BrokenPipeError:  # twisted-exec ... | head
        return 1
    except ModuleNotFoundError as error:
        return crashed(command, error, CommandParser.error_code)
    except OSError as error:
        if not (why := output_failure(error)):
            raise
        say(f"twisted-exec: {why}")
        return CommandParser.error_code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def _error_code(arguments: Sequence[str]) -> int:
    searches = arguments[:1] == ["logs"] and any(
        each.partition("=")[0] == "--grep" for each in arguments
    )
    return _GREP_ERROR if searches else 1

"""
The options ``--expect``, ``--send`` and ``--run``.

As all modules that a command line needs, this one imports little.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twisted_exec.cli.console.script import Script
    from twisted_exec.cli.console.session import Outcome

FAILED_CODE = 125
"""Exit code of a script whose session failed; a command's own code could not be told from 1."""

EPILOG = """\
With --expect, --send and --run: 0 if everything was matched and sent, or the
code of the command; 122 if the machine is at a login prompt or no shell answers;
123 if another user is the writer; 124 after the time limit; 125 if the session
failed.
"""

_SCRIPTED = ("--expect", "--send", "--run")


def add_script_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; :func:`script_problem` checks them together."""
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
        dest="script_command",
        metavar="COMMAND",
        help="run this command in the shell that waits at the machine's prompt, print its output "
        "alone, and exit with its code",
    )


class _Step(argparse.Action):
    """Collects the options in the order of the command line."""

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
    """:raises ValueError: the text is not valid; the message is for the user."""
    if option == "--send":
        from twisted_exec.cli.console.script import unescaped

        return unescaped(text)
    from twisted_exec.api.patterns import Pattern, Search

    return text, Search(Pattern(text, is_regex=True))


def script_problem(options: argparse.Namespace) -> str:
    """Return why the options do not go together; empty if they do."""
    if options.script_command is not None and options.steps:
        return "--run goes without --expect and --send"
    types = options.script_command is not None or any(
        isinstance(step, bytes) for step in options.steps
    )
    if types and options.read_only:
        return "--read-only goes without --send and --run"
    if options.script_command is None:
        return ""
    from twisted_exec.cli.console.shell import typed_command

    if not options.script_command.strip():
        return "--run needs a command"
    try:
        typed_command(options.script_command, "0" * 16)
    except ValueError as error:
        return str(error)
    return ""


def failure_code(arguments: Sequence[str]) -> int:
    """Return the exit code for errors before a session."""
    is_script = any(each.partition("=")[0] in _SCRIPTED for each in arguments)
    return FAILED_CODE if is_script else 1


def make_script(options: argparse.Namespace, clock: Any) -> Script | None:
    """Return the script of a command line; ``None`` if it has none."""
    if options.script_command is None and not options.steps:
        return None
    if options.script_command is not None:
        from twisted_exec.cli.console.shell import Run

        return Run(clock, options.script_command)
    from twisted_exec.cli.console.script import Expect

    return Expect(clock, options.steps, limited=options.timeout is None)


def scripted_outcome(script: Script, outcome: Outcome) -> Outcome:
    """Return the outcome of a session that a script drove: other endings are failures."""
    from dataclasses import replace

    from twisted_exec.cli.console.session import TIMED_OUT_CODE

    if script.outcome is not None:
        return script.outcome
    if outcome.signal or script.is_over:
        return outcome
    if outcome.exit_code == TIMED_OUT_CODE:
        line = f"{outcome.line}: {script.waiting}" if script.waiting else outcome.line
        return replace(outcome, line=line)
    if not outcome.line and not outcome.exit_code:  # the reader of the output closed it
        return outcome
    return replace(outcome, exit_code=FAILED_CODE)

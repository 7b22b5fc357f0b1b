"""
``twisted-exec completion``, and what shells and kubectl call for candidates.

kubectl completes ``kubectl console`` by the program ``kubectl_complete-console`` (source:
``k8s.io/kubectl/pkg/cmd/plugin``, ``plugin_completion.go``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twisted_exec.cli.commands import registry
from twisted_exec.cli.completion.scripts import SCRIPTS
from twisted_exec.cli.completion.words import Completion, complete
from twisted_exec.cli.console import options

_PATHS, _NO_PATHS = ":0", ":4"
"""Directives of cobra: default, and no file completion."""
_BREAKS = "=:"
"""
Characters at which bash splits words (``COMP_WORDBREAKS``), without white space, quotes and
operators.
"""


class _Values:
    """The values of :mod:`twisted_exec.cli.completion.values`, which is slow to import and for few words."""

    def of(self, name: str, options: Mapping[str, Any]) -> Iterable[str]:
        from twisted_exec.cli.completion.values import values_of

        return values_of(name, options)


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``completion``."""
    parser.description = (
        "Print a script that completes commands, options, machines, namespaces and "
        "contexts of twisted-exec and kubectl-console. In bash: "
        "source <(twisted-exec completion bash)"
    )
    parser.add_argument("shell", metavar="SHELL", choices=list(SCRIPTS), help="bash, zsh or fish")
    parser.set_defaults(run=_print_script)


def _print_script(options: argparse.Namespace) -> int:
    sys.stdout.write(SCRIPTS[options.shell])
    return 0


def answer(arguments: Sequence[str]) -> int:
    """
    Print candidates for a script.

    :param arguments: ``--bash POINT WORD -- LINE``, or ``--describe -- PROGRAM WORD...``.
    """
    if arguments[:1] == ["--bash"]:
        _, point, word, _, line = arguments
        return _answer_bash(line[: int(point)], word)
    _, _, program, *words = arguments
    completion = _completion(program, words)
    for text, summary in completion.words:
        print(f"{text}\t{summary}" if summary else text)
    if completion.is_path:
        print(":path")
    return 0


def _answer_bash(line: str, word: str) -> int:
    program, *words = _split(line)
    completion = _completion(program.rpartition("/")[2], words)
    last = words[-1] if words else ""
    # bash's word may be only the end of ours: that behind the last = or :.
    size = max((last.rfind(mark) for mark in _BREAKS), default=-1) + 1
    if word == last:
        size = 0
    for text, _ in completion.words:
        print(text[size:])
    if completion.is_path:
        print(":path")
    return 0


def _split(line: str) -> list[str]:
    """Split a line that may end inside quotes; the last word is empty after a space."""
    words, word, quote, is_word = [], "", "", False
    marks = iter(line)
    for mark in marks:
        if quote:
            if mark == quote:
                quote = ""
            else:
                word += mark
        elif mark in "'\"":
            quote, is_word = mark, True
        elif mark == "\\":
            word, is_word = word + next(marks, ""), True
        elif mark.isspace():
            if is_word:
                words.append(word)
            word, is_word = "", False
        else:
            word, is_word = word + mark, True
    return [*words, word]


def _completion(program: str, words: Sequence[str]) -> Completion:
    if program == "kubectl-console":
        return _console_completion(words)
    command = registry.command_of(words[:-1])  # the last is incomplete
    return complete(registry.make_parser([command]), words, _Values())


def _console_completion(words: Sequence[str]) -> Completion:
    return complete(options.make_parser(), words, _Values())


def main() -> int:
    """Run ``kubectl_complete-console``: the arguments are those of ``kubectl console``."""
    completion = _console_completion(sys.argv[1:])
    for text, summary in completion.words:
        print(f"{text}\t{summary}" if summary else text)
    print(_PATHS if completion.is_path else _NO_PATHS)
    return 0

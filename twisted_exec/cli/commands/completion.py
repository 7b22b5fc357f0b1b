"""
``twisted-exec completion``, and what shells and kubectl call for candidates.

kubectl completes ``kubectl console`` by the program ``kubectl_complete-console`` (source:
``k8s.io/kubectl/pkg/cmd/plugin``, ``plugin_completion.go``).
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from twisted_exec.api.names import dns_subdomain
from twisted_exec.cli.options import CheckedParser

if TYPE_CHECKING:
    from twisted_exec.cli.client import CommandClient


COMPLETE = "__complete"
"""Called by completion scripts; not in the help."""

_PATHS, _NO_PATHS = ":0", ":4"
"""Directives of cobra: default, and no file completion."""
_BREAKS = "=:"
"""
Characters at which bash splits words (``COMP_WORDBREAKS``), without white space, quotes and
operators.
"""


MakeParser = Callable[[], CheckedParser]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``completion`` to a program's commands."""
    parser = subparsers.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a script that completes commands, options, machines, namespaces and "
        "contexts of twisted-exec and kubectl-console. In bash: "
        "source <(twisted-exec completion bash)",
    )
    parser.add_argument("shell", metavar="SHELL", choices=list(SCRIPTS), help="bash, zsh or fish")
    parser.set_defaults(run=_print_script)


def _print_script(options: argparse.Namespace) -> int:
    sys.stdout.write(SCRIPTS[options.shell])
    return 0


def answer(arguments: Sequence[str], make_parser: MakeParser) -> int:
    """
    Print candidates for a script.

    :param arguments: ``--bash POINT WORD -- LINE``, or ``--describe -- PROGRAM WORD...``.
    """
    if arguments[:1] == ["--bash"]:
        _, point, word, _, line = arguments
        return _answer_bash(line[: int(point)], word, make_parser)
    _, _, program, *words = arguments
    completion = _completion(program, words, make_parser)
    for text, summary in completion.words:
        print(f"{text}\t{summary}" if summary else text)
    if completion.is_path:
        print(":path")
    return 0


def _answer_bash(line: str, word: str, make_parser: MakeParser) -> int:
    program, *words = _split(line)
    completion = _completion(program.rpartition("/")[2], words, make_parser)
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


def _completion(program: str, words: Sequence[str], make_parser: MakeParser) -> Completion:
    if program == "kubectl-console":
        return _console_completion(words)
    return complete(make_parser(), words, RealValues())


def _console_completion(words: Sequence[str]) -> Completion:
    from twisted_exec.cli.console.options import make_parser

    return complete(make_parser(), words, RealValues())


def main() -> int:
    """Run ``kubectl_complete-console``: the arguments are those of ``kubectl console``."""
    completion = _console_completion(sys.argv[1:])
    for text, summary in completion.words:
        print(f"{text}\t{summary}" if summary else text)
    print(_PATHS if completion.is_path else _NO_PATHS)
    return 0


_FILES = ("F", "FILE", "DIR", "DIRECTORY", "DATABASE")
_MANY = ("*", "+")
_VALUES_OF = ("context", "cluster", "user", "namespace", "machine", "space")
"""Arguments with values from the kubeconfig or from the server."""


_SUMMARY_LENGTH = 70


class Values(Protocol):
    """Source of values that are in no parser."""

    def of(self, name: str, options: Mapping[str, Any]) -> Iterable[str]:
        """Return the values of an argument."""


@dataclass(frozen=True)
class Completion:
    """
    Candidates for a word.

    :param is_path: the word is a path, which the shell completes.
    """

    words: Sequence[tuple[str, str]] = ()
    is_path: bool = False


@dataclass
class _Line:
    parser: CheckedParser
    options: dict[str, Any] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    positionals: list[argparse.Action] = field(default_factory=list)
    pending: argparse.Action | None = None
    """The option whose value is next."""
    only_positionals: bool = False


def complete(parser: CheckedParser, words: Sequence[str], values: Values) -> Completion:
    """
    Return the candidates for the last word.

    :param words: those after the program's name; the last may be empty.
    """
    *before, last = words or [""]
    line = _Line(parser)
    _enter(line, parser)
    for word in before:
        _read(line, word)
    if line.pending is not None and not (line.pending.nargs in _MANY and last.startswith("-")):
        return _values(line, line.pending, last, "", values)
    if last.startswith("-") and not line.only_positionals:
        name, equals, text = last.partition("=")
        action = _option(line.parser, name)
        if equals and action is not None:
            return _values(line, action, text, f"{name}=", values)
        return _options(line, last)
    if not line.positionals:
        return Completion()
    return _values(line, line.positionals[0], last, "", values)


def _enter(line: _Line, parser: CheckedParser) -> None:
    line.parser = parser
    line.positionals = [each for each in parser.arguments if not each.option_strings]


def _read(line: _Line, word: str) -> None:
    pending = line.pending
    if pending is not None and not (pending.nargs in _MANY and word.startswith("-")):
        _store(line, pending, word)
        if pending.nargs not in _MANY:
            line.pending = None
        return
    line.pending = None
    if word == "--":
        line.only_positionals = True
    elif word.startswith("-") and len(word) > 1 and not line.only_positionals:
        _read_option(line, word)
    elif line.positionals:
        action = line.positionals[0]
        if action is line.parser.commands:
            if word in action.choices:
                _enter(line, action.choices[word])
            return
        _store(line, action, word)
        if action.nargs not in _MANY:
            del line.positionals[0]


def _read_option(line: _Line, word: str) -> None:
    name, equals, text = word.partition("=")
    action = _option(line.parser, name)
    if action is None and not word.startswith("--"):  # -nNAMESPACE
        name, text, equals = word[:2], word[2:], "="
        action = _option(line.parser, name)
    if action is None:
        return
    line.present |= set(action.option_strings)
    if equals:
        _store(line, action, text)
    elif action.nargs != 0:
        line.pending = action
    else:
        _store(line, action, True)


def _store(line: _Line, action: argparse.Action, value: Any) -> None:
    if action in line.parser.repeatable:
        line.options.setdefault(action.dest, []).append(value)
    else:
        line.options[action.dest] = value


def _option(parser: CheckedParser, name: str) -> argparse.Action | None:
    return next((each for each in parser.arguments if name in each.option_strings), None)


def _options(line: _Line, start: str) -> Completion:
    words = []
    for action in line.parser.arguments:
        is_over = line.present & set(action.option_strings)
        if (is_over and action not in line.parser.repeatable) or _is_hidden(action):
            continue
        # A short form is a word of its own: offer it only for "-".
        words += [
            (name, _summary(action.help))
            for name in action.option_strings
            if name.startswith(start) and (name.startswith("--") or start == name)
        ]
    return Completion(words)


def _values(
    line: _Line, action: argparse.Action, start: str, prefix: str, values: Values
) -> Completion:
    if action is line.parser.commands:
        matches = [(name, _summary(each.summary)) for name, each in action.choices.items()]
    elif action.choices is not None:
        matches = [(str(each), "") for each in action.choices]
    elif action.dest in _VALUES_OF and _option(line.parser, "--as-uid") is not None:
        kind, slash, _ = start.rpartition("/")
        if not slash or action.dest != "machine":
            kind = ""
        names = values.of(action.dest, _options_of(line))
        matches = [(f"{kind}{slash if kind else ''}{name}", "") for name in names]
    else:
        return Completion(is_path=str(action.metavar) in _FILES)
    return Completion(
        [(prefix + word, summary) for word, summary in matches if word.startswith(start)]
    )


def _options_of(line: _Line) -> dict[str, Any]:
    defaults = {action.dest: action.default for action in line.parser.arguments}
    return {**defaults, **line.options}


def _is_hidden(action: argparse.Action) -> bool:
    return action.help == argparse.SUPPRESS


def _summary(text: str | None) -> str:
    first = (text or "").partition(";")[0].partition(" (default")[0]
    return textwrap.shorten(first, _SUMMARY_LENGTH, placeholder=" ...")


SECONDS = 3.0
_SECTIONS = {
    "context": ("contexts", "context"),
    "cluster": ("clusters", "cluster"),
    "user": ("users", "user"),
}
_AGENT = "twisted-exec completion"

_Ask = Callable[["CommandClient"], Coroutine[Any, Any, list[str]]]


class RealValues:
    """Values from the user's kubeconfig, and from the selected server."""

    def of(self, name: str, options: Mapping[str, Any]) -> Iterable[str]:
        if name in _SECTIONS:
            return sorted(_entries(options.get("kubeconfig"), *_SECTIONS[name]))
        asks: dict[str, _Ask] = {
            "namespace": _namespaces,
            "machine": _machines,
            "space": _spaces,
        }
        names = set(_from_server(argparse.Namespace(**options), asks[name]))
        # A hostile server's names could have control characters, or look like several words.
        return sorted(each for each in names if not dns_subdomain(each))


def _entries(path: str | None, section: str, noun: str) -> list[str]:
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
    from twisted_exec.kube.kubeconfig.entries import ConfigFile, file_names

    try:
        files = [ConfigFile.read(name) for name in file_names(path, os.environ)]
        return [entry.name for file in files for entry in file.entries(section, noun)]
    except KubeConfigError:
        return []


def _from_server(options: argparse.Namespace, ask: _Ask) -> list[str]:
    from twisted_exec.cli.options import config_of
    from twisted_exec.cli.runner import run_in_reactor
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

    names: list[str] = []
    try:
        config = config_of(options)
    except KubeConfigError:
        return names

    async def asking(reactor: Any) -> int:
        from twisted.internet.defer import Deferred, TimeoutError

        from twisted_exec.api.status import APIError
        from twisted_exec.cli.client import CommandClient

        client = CommandClient(config, reactor, timeout_seconds=SECONDS, agent=_AGENT)
        try:
            listing = Deferred.fromCoroutine(ask(client))
            names.extend(await listing.addTimeout(SECONDS, reactor))
        except (APIError, KubeConfigError, TimeoutError):
            pass
        return 0

    run_in_reactor("completion", asking)
    return names


def _name(obj: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": obj["metadata"].get("name", "")}}


async def _namespaces(client: CommandClient) -> list[str]:
    from twisted_exec.api.kinds import NAMESPACES

    listed = await client.list(NAMESPACES.resource, trim=_name)
    return [str(each["metadata"]["name"]) for each in listed["items"]]


async def _machines(client: CommandClient) -> list[str]:
    from twisted_exec.api.dialects import DIALECTS
    from twisted_exec.kube.machine_requests import served_dialects

    names = []
    for dialect in await served_dialects(client, DIALECTS):
        listed = await client.list(dialect.workload, client.config.namespace, trim=_name)
        names += [str(each["metadata"]["name"]) for each in listed["items"]]
    return names


async def _spaces(client: CommandClient) -> list[str]:
    from twisted_exec.api.spaces import SPACES

    listed = await client.list(SPACES, trim=_name)
    return [str(each["metadata"]["name"]) for each in listed["items"]]


BASH = """\
# bash completion for twisted-exec and kubectl-console: source <(twisted-exec completion bash)
_twisted_exec() {
    local word program=$1
    [[ $program == *kubectl-console ]] && program=${program%kubectl-console}twisted-exec
    COMPREPLY=()
    while IFS= read -r word; do
        if [[ $word == :path ]]; then
            compopt -o filenames -o bashdefault -o default 2>/dev/null
        else
            COMPREPLY+=("$word")
        fi
    done < <("$program" __complete --bash "$COMP_POINT" "$2" -- "$COMP_LINE" 2>/dev/null)
    # A candidate that ends in = continues with a value.
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _twisted_exec twisted-exec kubectl-console
# kubectl completes "kubectl console" by a function of bash-completion. Without it, Tab names a function that is missing.
if declare -F __kubectl_init_completion >/dev/null && ! declare -F _get_comp_words_by_ref >/dev/null; then
    __kubectl_init_completion() {
        compopt +o default 2>/dev/null
        [[ -n ${_twisted_exec_has_told-} ]] && return 1
        _twisted_exec_has_told=1
        printf '\\n%s\\n%s\\n' "kubectl completes nothing: the package bash-completion is missing." \\
            "Install it, and open a new shell; kubectl-console NAME completes without it." >&2
        return 1
    }
fi
"""

ZSH = """\
#compdef twisted-exec kubectl-console
# zsh completion for twisted-exec and kubectl-console: source <(twisted-exec completion zsh)
_twisted_exec() {
    local program=${words[1]} line
    local -a candidates
    local is_path=
    [[ $program == *kubectl-console ]] && program=${program%kubectl-console}twisted-exec
    while IFS= read -r line; do
        if [[ $line == :path ]]; then
            is_path=1
        else
            line=${line//:/\\\\:}
            candidates+=("${line/$'\\t'/:}")
        fi
    done < <($program __complete --describe -- "${words[1]:t}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if [[ -n $is_path ]]; then
        [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
        _files
    else
        _describe twisted-exec candidates
    fi
}
if [[ $funcstack[1] == _twisted_exec ]]; then
    _twisted_exec "$@"
else
    compdef _twisted_exec twisted-exec kubectl-console
fi
"""

FISH = """\
# fish completion for twisted-exec and kubectl-console: twisted-exec completion fish | source
function __twisted_exec_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r 'kubectl-console$' twisted-exec -- $words[1])
    for line in ($program __complete --describe -- (basename $words[1]) $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = :path
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c twisted-exec -f -a '(__twisted_exec_complete)'
complete -c kubectl-console -f -a '(__twisted_exec_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}

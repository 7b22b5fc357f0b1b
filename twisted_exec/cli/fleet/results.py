"""
The results of ``--run`` for many machines, as people read them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twisted_exec.api.display import listed
from twisted_exec.cli.fleet.prefixed_lines import PrefixedLines
from twisted_exec.cli.messages import one_line

_COLUMNS = 100
_MOST_NAMES = 6


@dataclass(frozen=True)
class Result:
    """
    The result of one machine.

    :param label: name of the machine.
    :param code: exit code of the command, or why there is none, as for ``kubectl console --run``.
    :param output: of the command, cut after a limit.
    :param cut_bytes: size of the rest.
    :param digest: of the whole output.
    :param problem: why the session failed; may be empty.
    """

    label: str
    code: int
    output: bytes
    cut_bytes: int = 0
    digest: bytes = b""
    problem: str = ""


def report(results: Sequence[Result], *, for_terminal: bool = False) -> bytes:
    """
    Return the results for people: equal results once, with the names of their machines, then the
    table.

    :param for_terminal: replace bytes that are not UTF-8.
    """
    groups: dict[tuple[int, bytes, str], list[Result]] = {}
    for result in results:
        problem = result.problem.replace(f'"{result.label}"', '"..."')
        groups.setdefault((result.code, result.digest, problem), []).append(result)
    # A stable order: machines of equal groups are in the order of their names.
    ordered = sorted(groups.values(), key=lambda group: (-len(group), group[0].label))
    parts = [b"".join(_group(group, for_terminal)) for group in ordered]
    return b"\n".join([*parts, _table(results)])


def _group(group: Sequence[Result], for_terminal: bool) -> Iterator[bytes]:
    first = group[0]
    count = "1 machine" if len(group) == 1 else f"{len(group)} machines"
    head = f"{count}, exit code {first.code}: {' '.join(result.label for result in group)}"
    names = textwrap.wrap(head, _COLUMNS, subsequent_indent="    ", break_long_words=False)
    yield "\n".join(names).encode() + b"\n"
    lines = PrefixedLines(" ", for_terminal=for_terminal)
    yield lines.feed(first.output)
    if first.cut_bytes:
        yield lines.remark(f"{first.cut_bytes} more bytes")
    if first.problem:
        yield lines.remark(one_line(first.problem))


def _table(results: Sequence[Result]) -> bytes:
    codes: dict[int, list[str]] = {}
    for result in results:
        codes.setdefault(result.code, []).append(result.label)
    lines = [f"{'CODE':<6}{'MACHINES':<10}NAMES"]
    for code, labels in sorted(codes.items()):
        lines.append(f"{code:<6}{len(labels):<10}{listed(labels, _MOST_NAMES)}")
    return "".join(f"{line}\n" for line in lines).encode()

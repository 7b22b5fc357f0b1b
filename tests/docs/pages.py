"""
Pages of the documentation, as tests read them.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

_DIRECTIVE = re.compile(r"^\.\. (program|option):: (.+)$", re.MULTILINE)
_DEFAULT = re.compile(r"Default:\s+``([^`]*)``")
_ROW = re.compile(r"^   \* - (.+(?:\n {6,}\S.*)*)$", re.MULTILINE)
_LITERAL = re.compile(r"``([^`]+)``")


def page(name: str) -> str:
    """The source of one page, such as ``reference/options``."""
    return (DOCS / f"{name}.rst").read_text(encoding="utf-8")


def options(text: str) -> dict[str, dict[str, str | None]]:
    """
    What ``program`` and ``option`` directives say.

    :return: for each program its options, as ``--name``, ``-n`` or ``NAME``, each with the
        default that is told, or ``None``.
    """
    found: dict[str, dict[str, str | None]] = {}
    directives = list(_DIRECTIVE.finditer(text))
    ends = [one.start() for one in directives[1:]] + [len(text)]
    program = ""
    for directive, end in zip(directives, ends, strict=True):
        kind, told = directive.groups()
        if kind == "program":
            program = told
            found[program] = {}
            continue
        default = _DEFAULT.search(text, directive.end(), end)
        for form in told.split(", "):
            found[program][form.split()[0]] = default[1] if default else None
    return found


def section(text: str, title: str) -> str:
    """The part under a heading, to the next heading of the same kind."""
    heading = re.search(rf"^{re.escape(title)}\n([-~]{{3,}})$", text, re.MULTILINE)
    assert heading is not None, f"there is no section {title!r}"
    rest = text[heading.end() :]
    following = re.search(rf"^.+\n{heading[1][0]}{{3,}}$", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def table(text: str, title: str) -> str:
    """The list table with a title."""
    _, found, rest = text.partition(f".. list-table:: {title}\n")
    assert found, f"there is no table {title!r}"
    return re.split(r"^(?=\S)", rest, maxsplit=1, flags=re.MULTILINE)[0]


def first_column(text: str) -> set[str]:
    """The literals in the first column of all list tables of a part."""
    return {word for cell in _ROW.findall(text) for word in _LITERAL.findall(cell)}

"""
Parsers for pages of the documentation.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

_DIRECTIVE = re.compile(r"^\.\. (program|option):: (.+)$", re.MULTILINE)
_DEFAULT = re.compile(r"Default:\s+``([^`]*)``")
_ROW = re.compile(r"^   \* - (.+(?:\n {6,}\S.*)*)$", re.MULTILINE)
_TOCTREE = re.compile(r"^\.\. toctree::\n((?:   .*\n|\n)*)", re.MULTILINE)
_LITERAL = re.compile(r"``([^`]+)``")


def page(name: str) -> str:
    """Return the source of a page, such as ``reference/options``."""
    return (DOCS / f"{name}.rst").read_text(encoding="utf-8")


def names() -> list[str]:
    """Return the names of all pages."""
    paths = (path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.rst"))
    return sorted(str(path) for path in paths if path.parts[0] not in ("_build", "newsfragments"))


def contents(text: str) -> list[str]:
    """Return the entries of the ``toctree`` directives of a page, as they are written."""
    return [
        line.strip()
        for block in _TOCTREE.findall(text)
        for line in block.splitlines()
        if line.strip() and not line.strip().startswith(":")
    ]


def options(text: str) -> dict[str, dict[str, str | None]]:
    """
    Parse the ``program`` and ``option`` directives of a page.

    :return: for each program its options, as ``--name``, ``-n`` or ``NAME``, each with its
        documented default or ``None``.
    """
    result: dict[str, dict[str, str | None]] = {}
    directives = list(_DIRECTIVE.finditer(text))
    ends = [each.start() for each in directives[1:]] + [len(text)]
    program = ""
    for directive, end in zip(directives, ends, strict=True):
        kind, argument = directive.groups()
        if kind == "program":
            program = argument
            result[program] = {}
            continue
        default = _DEFAULT.search(text, directive.end(), end)
        for form in argument.split(", "):
            result[program][form.split()[0]] = default[1] if default else None
    return result


def section(text: str, title: str) -> str:
    """Return the text under a heading, up to the next heading of the same level."""
    heading = re.search(rf"^{re.escape(title)}\n([-~]{{3,}})$", text, re.MULTILINE)
    assert heading is not None, f"there is no section {title!r}"
    rest = text[heading.end() :]
    following = re.search(rf"^.+\n{heading[1][0]}{{3,}}$", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def table(text: str, title: str) -> str:
    """Return the list table with a title."""
    _, title_line, rest = text.partition(f".. list-table:: {title}\n")
    assert title_line, f"there is no table {title!r}"
    return re.split(r"^(?=\S)", rest, maxsplit=1, flags=re.MULTILINE)[0]


def first_column(text: str) -> set[str]:
    """Return the literals in the first column of all list tables of a text."""
    return {word for cell in _ROW.findall(text) for word in _LITERAL.findall(cell)}

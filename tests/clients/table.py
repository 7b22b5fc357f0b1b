"""
The table of clients: how it is written into the documentation, and read from there.

A cell is :data:`WORKS` when it was tried and did, and :data:`CANNOT` when the client cannot
do that by its nature; a footnote says why, or what was tried instead.  What :data:`FAILED`
is shown, but never written into a page.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

COLUMNS = (
    "get",
    "watch",
    "apply",
    "server-side apply",
    "explain",
    "can-i",
    "attach",
    "exec",
    "logs -f",
    "console",
    "stdin EOF",
    "resize",
    "exit status",
)

WORKS, CANNOT, FAILED = "✓", "–", "✗"  # noqa: RUF001

_ROW = re.compile(rf"^   \* - (.+)\n((?:     - .*\n){{{len(COLUMNS)}}})", re.MULTILINE)


_NOTE = re.compile(r" \[\d+\]_")


@dataclass(frozen=True)
class Row:
    """
    What was found with one client.

    :param marks: ``WORKS``, ``CANNOT`` or ``FAILED`` for each column.
    :param notes: for some columns why it cannot, or what was tried.
    """

    client: str
    version: str
    marks: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)


class _Notes:
    """Footnotes: the same text is said once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def reference(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f" [{self.texts.index(text) + 1}]_"

    def render(self) -> str:
        return "".join(f".. [{number}] {text}\n" for number, text in enumerate(self.texts, 1))


def render(rows: Sequence[Row]) -> str:
    """The table and its footnotes in reStructuredText."""
    notes = _Notes()
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :stub-columns: 1",
        "   :class: clients",
        "",
    ]
    lines += _line("", COLUMNS)
    for row in rows:
        cells = [
            row.marks[column] + (notes.reference(row.notes[column]) if column in row.notes else "")
            for column in COLUMNS
        ]
        lines += _line(row.client, cells)
    return "\n".join(lines) + "\n\n" + notes.render()


def _line(first: str, cells: Sequence[str]) -> list[str]:
    return [f"   * - {first}".rstrip(), *(f"     - {cell}" for cell in cells)]


def render_versions(rows: Sequence[Row], date: str) -> str:
    """Which versions were tried, and when."""
    lines = [".. list-table::", "   :header-rows: 1", "", "   * - client", "     - version"]
    lines.append("     - tested on")
    for row in rows:
        lines += [f"   * - {row.client}", f"     - {row.version}", f"     - {date}"]
    return "\n".join(lines) + "\n"


def read(page: str) -> dict[str, dict[str, str]]:
    """
    The marks of the tables on a page.

    :return: for each client its mark by column, without the footnotes.
    """
    found = {}
    for client, cells in _ROW.findall(page):
        marks = [cell.split("- ", 1)[1].split(" ")[0] for cell in cells.splitlines()]
        found[client] = dict(zip(COLUMNS, marks, strict=True))
    return found


Cells = dict[str, dict[str, str]]
"""The cells of a table, without footnotes: by row and column."""


def cells_of(text: str) -> Cells:
    """Return the cells of the first list-table in a text."""
    table = text.partition(".. list-table::")[2].partition(".. list-table::")[0]
    table = re.split(r"\n(?=\S)", table)[0]
    (_, *columns), *rows = (
        [_NOTE.sub("", cell).strip() for cell in re.split(r"\n     -", row)]
        for row in table.split("\n   * -")[1:]
    )
    return {first: dict(zip(columns, cells, strict=True)) for first, *cells in rows}


def compare(found: str, page: str) -> str:
    """
    Compare the table of a trial with the table of a page, where both have the row and the column.

    :param page: it, from the table on.
    :return: the differences, one in a line.
    """
    shown = cells_of(page)
    return "\n".join(
        f"{row}, {column}: {cell!r}, and the page has {shown[row][column]!r}"
        for row, cells in cells_of(found).items()
        for column, cell in cells.items()
        if shown.get(row, {}).get(column, cell) != cell
    )


def not_compared(here: Collection[str], page: str) -> str:
    """Return which clients of a page's table are not here, and which are not on the page; empty if none."""
    shown = cells_of(page)
    parts = (("not here", shown.keys() - here), ("not on the page", set(here) - shown.keys()))
    return "; ".join(
        f"not compared, because {why}: {', '.join(sorted(names))}" for why, names in parts if names
    )

"""
What a client is to the matrix, and what every one of them must show.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from tests.flows.programs import Program

from .place import Place
from .table import CANNOT, COLUMNS, FAILED, WORKS, Row

REQUIRED_EXIT_CODE = 7


class Client:
    """
    One row.

    For each column that is not in ``cannot`` there is a method ``try_COLUMN``, with
    underscores, that raises an ``AssertionError`` when it does not work.

    :cvar name: as the table has it.
    :cvar cannot: for some columns why this client cannot do it by its nature.
    :cvar notes: for some columns what was tried instead of the obvious.
    """

    name = ""
    cannot: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}

    async def version(self) -> str:
        """The client's own version, as it tells it."""
        raise NotImplementedError

    async def attempt(self, place: Place, failures: list[str]) -> Row:
        """
        Try every column, from left to right.

        :param failures: what did not work is added.
        """
        marks = dict.fromkeys(COLUMNS, CANNOT)
        for column in COLUMNS:
            if column in self.cannot:
                continue
            try:
                await getattr(self, f"try_{re.sub('[ -]+', '_', column)}")(place)
                marks[column] = WORKS
            except Exception as error:  # one cell that fails must not hide the others
                marks[column] = FAILED
                failures.append(f"{self.name}, {column}: {type(error).__name__}: {error}")
        return Row(self.name, await self.version(), marks, {**self.notes, **self.cannot})


def new_mark() -> str:
    """A word that was never printed before: every viewer is shown what was."""
    return "m" + secrets.token_hex(4)


def expect(condition: object, program: Program) -> None:
    """
    Something must hold after a program has run.

    :raises AssertionError: it does not; with all that was printed.
    """
    if not condition:
        told = program.output.decode(errors="replace")[-3000:]
        raise AssertionError(f"{' '.join(program.argv)} (exit code {program.exit_code})\n{told}")

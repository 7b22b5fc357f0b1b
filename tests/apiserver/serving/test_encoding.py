"""
Tests for :mod:`twisted_exec.apiserver.serving.bodies`.
"""

from __future__ import annotations

import json
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import EPOCH, machine
from twisted_exec.api import kinds, table
from twisted_exec.api.encoded import Encoded
from twisted_exec.api.kinds import Column, Object
from twisted_exec.apiserver.serving.bodies import (
    PIECE_BYTES,
    PIECE_ROWS,
    EventLines,
    gathered,
    list_pieces,
    object_json,
)
from twisted_exec.apiserver.serving.query import ResponseForm
from twisted_exec.storage.interfaces import MODIFIED, Event

FORMS = [
    ResponseForm(),
    ResponseForm("Partial"),
    ResponseForm("Table", "None"),
    ResponseForm("Table", "Metadata"),
    ResponseForm("Table", "Object"),
]


def stored(name: str, **spec: object) -> Object:
    """A machine as a store keeps it."""
    obj = machine(name, **spec)
    return Encoded({**obj, "metadata": {"name": name, "namespace": "ä", "resourceVersion": "7"}})


class ObjectTests(SynchronousTestCase):
    """Tests for :func:`object_json`."""

    def test_forms(self) -> None:
        """Each form says what the object says, kept bytes or not."""
        obj = stored('a"b\\')
        for form in FORMS:
            told = json.loads(object_json(kinds.MACHINES, obj, form, EPOCH))
            self.assertEqual(told, self.expected(obj, form))
            plain = json.loads(object_json(kinds.MACHINES, dict(obj), form, EPOCH))
            self.assertEqual(plain, told)

    def expected(self, obj: Object, form: ResponseForm) -> Object:
        if form.shape == "Table":
            metadata = {"resourceVersion": "7"}
            return table.table(
                kinds.MACHINES, [obj], EPOCH, metadata=metadata, include=form.include
            )
        return table.partial(obj) if form.shape == "Partial" else obj

    def test_columns_once(self) -> None:
        """A watch's later tables name no columns."""
        told = json.loads(
            object_json(kinds.MACHINES, stored("a"), ResponseForm("Table"), EPOCH, columns=False)
        )
        self.assertEqual(told["columnDefinitions"], [])
        self.assertEqual(len(told["rows"]), 1)


class ListTests(SynchronousTestCase):
    """Tests for :func:`list_pieces`."""

    def pieces(self, items: list[Object], form: ResponseForm) -> list[bytes]:
        metadata = {"resourceVersion": "9", "continue": "x"}
        return list(list_pieces(kinds.MACHINES, items, metadata, form, EPOCH))

    def test_forms(self) -> None:
        """A list of each form, of none, one and many."""
        for count in (0, 1, 3):
            items = [stored(f"m{number}") for number in range(count)]
            for form in FORMS:
                (piece,) = self.pieces(items, form)
                told = json.loads(piece)
                self.assertEqual(told["metadata"], {"resourceVersion": "9", "continue": "x"})
                elements = told["rows" if form.shape == "Table" else "items"]
                self.assertEqual(len(elements), count)
        self.assertEqual(json.loads(self.pieces(items, ResponseForm())[0])["items"], items)
        self.assertEqual(
            json.loads(self.pieces(items, ResponseForm())[0])["apiVersion"],
            "compute.ironcore.dev/v1alpha1",
        )

    def test_pieces(self) -> None:
        """A long list comes in pieces, which are one document together."""
        items = [stored(f"m{number}", text="x" * 1000) for number in range(500)]
        pieces = self.pieces(items, ResponseForm())
        self.assertGreater(len(pieces), 5)
        for piece in pieces:
            self.assertLess(len(piece), PIECE_BYTES + 2000)
        self.assertEqual(json.loads(b"".join(pieces))["items"], items)

    def test_made_when_asked_for(self) -> None:
        """Pieces are made on demand."""
        items = [stored(f"m{number}", text="x" * 1000) for number in range(500)]
        read: list[str] = []
        counting = replace(
            kinds.MACHINES, columns=(Column("Read", lambda obj: read.append("") or "yes"),)
        )
        pieces = list_pieces(counting, items, {}, ResponseForm("Table", "Object"), EPOCH)
        self.assertEqual(read, [])
        next(pieces)
        self.assertTrue(0 < len(read) < 100)

    def test_rows(self) -> None:
        """The rows of a Table come in small pieces, however little they contain."""
        items = [stored(f"m{number}") for number in range(1000)]
        pieces = self.pieces(items, ResponseForm("Table", "None"))
        rows = [piece.count(b'"cells"') for piece in pieces]
        self.assertEqual((sum(rows), max(rows)), (1000, PIECE_ROWS))
        self.assertEqual(len(json.loads(b"".join(pieces))["rows"]), 1000)


class GatheredTests(SynchronousTestCase):
    """Tests for :func:`gathered`."""

    def test_nothing(self) -> None:
        """Of nothing, or of empty parts, there are no pieces."""
        self.assertEqual(list(gathered([])), [])
        self.assertEqual(list(gathered([b"", b""])), [])

    def test_large_parts(self) -> None:
        """A part larger than a piece is one."""
        large = b"x" * (PIECE_BYTES * 3)
        self.assertEqual(list(gathered([b"a", large, b"b", b"", b"c"])), [b"a" + large, b"bc"])


class EventLinesTests(SynchronousTestCase):
    """Tests for :class:`EventLines`."""

    def test_once(self) -> None:
        """However many watches tell a change, its object is encoded once for each form."""
        read: list[str] = []
        kind = replace(
            kinds.MACHINES, columns=(Column("Read", lambda obj: read.append("") or "yes"),)
        )
        lines = EventLines(lambda: EPOCH)
        for version in range(2):
            event = Event(MODIFIED, stored("a", turn=version), None, version)
            told = {
                id(lines.line_of(event, kind, MODIFIED, event.obj, form, columns=columns))
                for _ in range(1000)
                for form in FORMS
                for columns in (True, False)
            }
            self.assertEqual(len(told), len(FORMS) * 2)
            tables = [form for form in FORMS if form.shape == "Table"]
            self.assertEqual(len(read), len(tables) * 2)
            read.clear()

    def test_each_change_is_told_anew(self) -> None:
        """The lines of one change are not those of the next."""
        lines = EventLines(lambda: EPOCH)
        for turn in range(3):
            event = Event(MODIFIED, stored("a", turn=turn), None, turn)
            raw = lines.line_of(
                event, kinds.MACHINES, MODIFIED, event.obj, ResponseForm(), columns=False
            )
            told = json.loads(raw)
            self.assertEqual((told["type"], told["object"]["spec"]["turn"]), (MODIFIED, turn))
            self.assertTrue(raw.endswith(b"}\n"))

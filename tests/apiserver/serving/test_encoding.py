"""
Tests for :mod:`twisted_exec.apiserver.serving.encoding`.
"""

from __future__ import annotations

import json
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import EPOCH, machine
from tests.retained import weight
from twisted_exec.api import kinds, table
from twisted_exec.api.encoded import Encoded
from twisted_exec.api.kinds import Column, Kind, Object
from twisted_exec.api.kinds.kind import NOTHING
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.serving.encoding import (
    PIECE_BYTES,
    PIECE_ROWS,
    gathered,
    list_pieces,
    object_json,
    row_json,
)
from twisted_exec.apiserver.serving.query import ResponseForm

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


class RowTests(SynchronousTestCase):
    """Tests for :func:`row_json`: what is kept with an object between Tables."""

    def setUp(self) -> None:
        self.read: list[str] = []
        columns = (
            Column("Read", self.read_column),
            Column("Started", lambda obj: obj["spec"].get("started"), moment=True),
            Column("Ended", lambda obj: obj["spec"].get("ended", NOTHING), "", 1, moment=True),
        )
        self.kind = replace(kinds.MACHINES, columns=columns)

    def read_column(self, obj: Object) -> str:
        self.read.append(obj["metadata"]["name"])
        return f"{obj['spec'].get('turn')}\0\n"

    def cells(self, obj: Object, after: float = 0, kind: Kind | None = None) -> list[str]:
        row = json.loads(row_json(kind or self.kind, obj, EPOCH + after, "None"))
        self.assertEqual(row["cells"], table.cells(kind or self.kind, dict(obj), EPOCH + after))
        cells: list[str] = row["cells"]
        return cells

    def test_read_once(self) -> None:
        """The columns of a stored object are read once, and those of other objects each time."""
        obj = stored("a", turn=1)
        for _ in range(3):
            row_json(self.kind, obj, EPOCH, "None")
        self.assertEqual(len(self.read), 1)
        row_json(self.kind, stored("a", turn=1), EPOCH, "None")
        self.assertEqual(len(self.read), 2)
        for _ in range(3):
            row_json(self.kind, dict(obj), EPOCH, "None")
        self.assertEqual(len(self.read), 5)

    def test_memory(self) -> None:
        """A row keeps the text of its cells, and no second copy of the object's metadata."""
        obj = stored("a" * 1000, turn="b" * 1000)
        object_json(self.kind, obj, ResponseForm(), EPOCH)
        before = weight(obj, beside=[self.kind])
        for _ in range(2):
            row_json(self.kind, obj, EPOCH, "Metadata")
        self.assertLess(weight(obj, beside=[self.kind]) - before, 2500)

    def test_ages(self) -> None:
        """All ages are those of the moment, however often a row was rendered."""
        obj = stored("a", started=timestamp(EPOCH), ended=timestamp(EPOCH - 60))
        obj["metadata"]["creationTimestamp"] = timestamp(EPOCH - 3600)
        for after, ages in ((0, ["0s", "60m", "60s"]), (5, ["5s", "60m", "65s"])):
            _, _, started, age, ended = self.cells(obj, after)
            self.assertEqual([started, age, ended], ages)

    def test_no_moments(self) -> None:
        """Cells without a valid time say so."""
        for started in (None, "", "yesterday", "9999-99-99T00:00:00Z"):
            cells = self.cells(stored("a", started=started))
            self.assertEqual(cells[2:], ["<unknown>", "<unknown>", NOTHING])

    def test_other_kind(self) -> None:
        """Kinds with other columns share objects, such as two versions of a group."""
        obj, other = stored("a", turn=1), replace(self.kind, columns=())
        for _ in range(2):
            self.assertEqual(len(self.cells(obj)), 5)
            self.assertEqual(self.cells(obj, kind=other), ["a", "<unknown>"])

    def test_own_columns(self) -> None:
        """A kind with all columns of its own has no other cells."""
        own = replace(self.kind, own_columns=True)
        self.assertEqual(self.cells(stored("a", turn=1), kind=own), ["1\0\n", "<unknown>", NOTHING])


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

"""
Objects and changes in the tables of the SQLite store, read into a history.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

from twisted_exec.api.encoded import Encoded
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import Event, Object
from twisted_exec.storage.sqlite.database import last_version

_TOGETHER = 64
"""Rows that are decoded together."""


def load(database: sqlite3.Connection, restored: History) -> History:
    """Load a store's file into an empty history."""
    version = last_version(database)
    (oldest,) = database.execute("SELECT min(version) FROM log").fetchone()
    forgotten = version if oldest is None else oldest - 1
    recent: dict[int, Object] = {}

    def objects() -> Iterator[tuple[str, Object]]:
        for table, obj in read_objects(database):
            if (changed := _version_of(obj)) > forgotten:
                recent[changed] = obj
            yield table, obj

    restored.restore(objects(), version, forgotten)
    for table, event in _events(database, recent):
        restored.remember(table, event)
    return restored


def read_objects(database: sqlite3.Connection) -> Iterator[tuple[str, Object]]:
    """Iterate over the current objects, with their tables."""
    rows = database.execute("SELECT resource, body FROM objects")
    while chunk := rows.fetchmany(_TOGETHER):
        yield from zip((table for table, _ in chunk), _decoded(chunk), strict=True)


def _decoded(rows: Sequence[tuple[str, str]]) -> list[Object]:
    try:
        objects = json.loads(f"[{','.join([text for _, text in rows])}]")
    except (ValueError, RecursionError):
        objects = []
    if len(objects) != len(rows) or not all(isinstance(obj, dict) for obj in objects):
        objects = [_decoded_alone(table, text) for table, text in rows]
    return [Encoded(obj, text) for obj, (_, text) in zip(objects, rows, strict=True)]


def _decoded_alone(table: str, text: str) -> Object:
    try:
        obj = json.loads(text)
        if isinstance(obj, dict):
            return obj
    except (ValueError, RecursionError):
        pass
    # Python's own message may be about Python, as for a number of 5000 digits.
    raise ValueError(f"an object of {table} is no valid JSON")


def _version_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _events(
    database: sqlite3.Connection, objects: dict[int, Object]
) -> Iterator[tuple[str, Event]]:
    rows = database.execute(
        "SELECT resource, type, body, previous, version FROM log ORDER BY version"
    )
    while chunk := rows.fetchmany(_TOGETHER):
        tables = {row[2]: row[0] for row in chunk if row[4] not in objects}
        tables |= {row[3]: row[0] for row in chunk if row[3] is not None}
        texts = [(table, text) for text, table in tables.items()]
        decoded = dict(zip(tables, _decoded(texts), strict=True))
        for table, change, body, previous, version in chunk:
            obj = objects.get(version) or decoded[body]
            before: Object | None = None
            if previous is not None:
                before = decoded[previous]
                before = objects.setdefault(_version_of(before), before)
            objects[version] = obj
            yield table, Event(change, obj, before, version)

"""
Conversion of changes to the lines of a watch, as seen through its selectors.

An object that no longer matches is ``DELETED`` for this watcher, one that begins to match is
``ADDED``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from sys import intern

from twisted_exec.api import table
from twisted_exec.api.encoded import json_bytes
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.serving.encoding import empty_list, object_json
from twisted_exec.apiserver.serving.query import ListOptions, WatchOptions
from twisted_exec.apiserver.serving.selection import is_selected
from twisted_exec.apiserver.serving.watches.shared_events import SharedEvent
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED
from twisted_exec.storage.write_checks import versioned


def event_line(change: str, encoded: bytes) -> bytes:
    """Encode one line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (change.encode(), encoded)


class WatchConverter:
    """Converts changes to lines for one watch."""

    __slots__ = ("_columns_sent", "_form", "_kind", "_now", "_options")

    def __init__(self, kind: Kind, options: WatchOptions, now: Callable[[], float]) -> None:
        self._kind, self._options, self._now = kind, options, now
        self._columns_sent = False
        # A string has its hash, which a dataclass computes for each change.
        self._form = intern(repr((kind.resource, options.form)))

    def existing(self, obj: Object) -> bytes:
        """Return the line for an existing object; empty if it does not match."""
        if not is_selected(self._kind, obj, self._options.chosen):
            return b""
        columns, self._columns_sent = not self._columns_sent, True
        form = self._options.form
        return event_line(ADDED, object_json(self._kind, obj, form, self._now(), columns=columns))

    def changed(self, change: SharedEvent) -> bytes:
        """Return the line for a change, as seen through the selectors; empty if it is not seen."""
        fits, fitted = self._selected(change)
        if fits:
            return self._line(change, MODIFIED if fitted else ADDED)
        return self._line(change, DELETED) if fitted else b""

    def _selected(self, change: SharedEvent) -> tuple[bool, bool]:
        kind, chosen, event = self._kind, self._options.chosen, change.event
        previous = event.previous
        if not chosen.selects:
            return event.type != DELETED, previous is not None

        def compare() -> tuple[ListOptions, bool, bool]:
            fits = event.type != DELETED and is_selected(kind, event.obj, chosen)
            # The result keeps the selector, so that no other gets its id meanwhile.
            return chosen, fits, previous is not None and is_selected(kind, previous, chosen)

        # Watches with equal selectors have the same object.
        _, fits, fitted = change.once((kind.resource, id(chosen)), compare)
        return fits, fitted

    def _line(self, change: SharedEvent, type_: str) -> bytes:
        columns, self._columns_sent = not self._columns_sent, True

        def make() -> bytes:
            obj = _removed(change) if type_ == DELETED else change.event.obj
            form = self._options.form
            return event_line(
                type_, object_json(self._kind, obj, form, self._now(), columns=columns)
            )

        line: bytes = change.once((self._form, type_, columns), make)
        return line

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """Return the line of a bookmark at this version."""
        metadata: Object = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = self._initial_end()
        resource, form = self._kind.resource, self._options.form
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if form.shape == "Table":
            obj = table.table(self._kind, [], 0.0, metadata=metadata, columns=False)
        elif form.shape == "Partial":
            obj = table.partial(obj)
        return event_line("BOOKMARK", json_bytes(obj))

    def _initial_end(self) -> Object:
        # client-go creates a list of this type for its caller.
        blueprint = json_bytes(empty_list(self._kind, {}, self._options.form))
        return {
            "k8s.io/initial-events-end": "true",
            "kubernetes.io/initial-events-list-blueprint": base64.b64encode(blueprint).decode(),
        }


def _removed(change: SharedEvent) -> Object:
    """Return the object as clients know it, at the version of its removal."""
    event, previous = change.event, change.event.previous
    if event.type == DELETED or previous is None:
        return event.obj
    removed: Object = change.once("gone", lambda: versioned(previous, event.version))
    return removed


def error_line(error: APIError) -> bytes:
    """Return the line that ends a watch with an error."""
    return event_line("ERROR", json_bytes(error.to_status()))

"""
What an API server knows of one kind of object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.fields import Cause
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema
from twisted_exec.api.selectors import Field

Object = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """
    One column of ``kubectl get``, between NAME and AGE.

    :param read: the cell's text.
    :param priority: above 0 means only with ``-o wide``, behind AGE.
    :param moment: what is read is a time, and the cell tells how long ago that was.
    :param path: the same as JSONPath, for kinds that a CustomResourceDefinition may describe
        (:mod:`twisted_exec.api.kinds.common.jsonpath`).
    """

    name: str
    read: Callable[[Object], str | None]
    description: str = ""
    priority: int = 0
    moment: bool = False
    path: str = ""


def _nothing(obj: Object) -> list[Cause]:
    return []


def _nothing_changed(new: Object, old: Object) -> list[Cause]:
    return []


def _finalizers(obj: Object) -> list[str]:
    return list(obj["metadata"].get("finalizers", []))


def _name(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("name", ""))


def _namespace(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("namespace", ""))


@dataclass(frozen=True)
class Connect:
    """
    A subresource that opens a stream.

    :param options: the kind of its query, such as ``PodExecOptions``.
    :param schema: of that kind.
    """

    options: str
    schema: Schema


@dataclass(frozen=True)
class Kind:
    """
    One kind: its names, its schema, its rules.

    The functions get objects that fit the schema already.

    :param schema: the object's properties besides ``apiVersion``, ``kind`` and
        ``metadata``.
    :param own_columns: ``columns`` are all there are, without NAME before and AGE behind.
    :param has_status: ``status`` is written only through the ``status``
        subresource.
    :param status_parts: subresources besides ``status`` that write the status, or a part of it.
    :param counts_generation: ``metadata.generation`` counts the changes of
        everything but metadata and status.
    :param name_rule: says what is wrong with a name.
    :param fields: what field selectors may name, besides name and namespace.
    :param unconditional_update: an update need not give ``resourceVersion``.
    :param stored: false for reviews, which are answered and forgotten, and for what is
        read-only.
    :param kept_as: as which resource the store has them, when that is another.
    :param read_only: clients may only look; usually other objects, shown as objects of this
        kind.
    :param server_made: clients may look and delete, and nothing else; says to whoever
        tries why that is.
    :param initial_status: of an object just created.
    :param server_fields: top-level fields that no client writes, whatever it
        sends; nobody manages them.
    :param terminating_status: merged into the status when deletion begins.
    :param held_by: the finalizers that keep a deleted object.
    :param prepare: sets, in place, what depends on more than a default.
    :param carry_over: called with the new and the old object; restores, in
        place, what an update may not touch.
    :param carry_status: called with the subresource, the new and the old object; restores,
        in place, what of the status a write through it may not touch.
    :param validate_status: what is wrong with a new status, after that.
    :param connects: subresources that open a stream, by name.
    :param confidential: what an object holds is for its readers: no message quotes it.
    :param texts: subresources that are read, and are text, by name; with what their
        query may hold.
    :param asked: subresources that are created, answered at once and not kept, by name; with
        the kind of the question.
    """

    resource: Resource
    singular: str
    schema: Mapping[str, Schema] = field(default_factory=dict)
    required: Sequence[str] = ()
    description: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    own_columns: bool = False
    has_status: bool = False
    status_parts: tuple[str, ...] = ()
    counts_generation: bool = False
    name_rule: Callable[[str], list[str]] = names.dns_subdomain
    fields: Mapping[str, Field] = field(default_factory=dict)
    unconditional_update: bool = True
    stored: bool = True
    kept_as: Resource | None = None
    read_only: bool = False
    server_made: str = ""
    confidential: bool = False
    connects: Mapping[str, Connect] = field(default_factory=dict)
    texts: Mapping[str, Mapping[str, Schema]] = field(default_factory=dict)
    asked: Mapping[str, Kind] = field(default_factory=dict)
    initial_status: Mapping[str, Any] = field(default_factory=dict)
    server_fields: tuple[str, ...] = ()
    terminating_status: Mapping[str, Any] = field(default_factory=dict)
    held_by: Callable[[Object], list[str]] = _finalizers
    prepare: Callable[[Object], None] | None = None
    carry_over: Callable[[Object, Object], None] | None = None
    validate: Callable[[Object], list[Cause]] = _nothing
    validate_update: Callable[[Object, Object], list[Cause]] = _nothing_changed
    carry_status: Callable[[str, Object, Object], None] | None = None
    validate_status: Callable[[Object, Object], list[Cause]] = _nothing_changed

    @cached_property
    def columns_by_priority(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """The columns that are always shown, and the others."""
        always = tuple(column for column in self.columns if not column.priority)
        return always, tuple(column for column in self.columns if column.priority)

    @cached_property
    def selectable(self) -> dict[str, Field]:
        """Everything a field selector may name."""
        return {"metadata.name": _name, "metadata.namespace": _namespace, **self.fields}

    @property
    def status_subresources(self) -> tuple[str, ...]:
        """The subresources that write the status."""
        return ("status", *self.status_parts) if self.has_status else ()

    @property
    def listed(self) -> bool:
        """Whether objects of this kind can be read."""
        return self.stored or self.read_only

    @property
    def list_kind(self) -> str:
        """The kind of a list of these."""
        return f"{self.resource.kind}List"

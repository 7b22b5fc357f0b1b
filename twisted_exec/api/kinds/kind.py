"""
Definition of a kind, for the API server.
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

    :param read: returns a string, or ``None`` if there is nothing to show.
    :param priority: above 0 means only with ``-o wide``, after AGE.
    :param moment: ``read`` returns a time, and the cell shows its age.
    :param path: the column as JSONPath, for kinds with a CustomResourceDefinition.
    """

    name: str
    read: Callable[[Object], str | None]
    description: str = ""
    priority: int = 0
    moment: bool = False
    path: str = ""


NOTHING = "<none>"
"""Text of a cell without a value."""


def cell(*path: str, missing: str = NOTHING) -> Callable[[Object], str]:
    """
    Return a function that reads a field as the text of a cell.

    :param missing: the text if the field is absent or empty.
    """

    def read(obj: Object) -> str:
        value: Any = obj
        for key in path:
            value = value.get(key)
            if value is None or value == "":
                return missing
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read


def _no_causes(obj: Object) -> list[Cause]:
    return []


def _no_update_causes(new: Object, old: Object) -> list[Cause]:
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

    :param options: the kind of its query options, such as ``PodExecOptions``.
    """

    options: str
    schema: Schema
    methods: tuple[str, ...] = ("GET", "POST")


@dataclass(frozen=True)
class Kind:
    """
    A kind: its names, its schema, its rules.

    The functions are called with objects that fit the schema; ``prepare`` and the ``carry_``
    functions also with objects that do not fit yet.

    :param schema: the object's properties besides ``apiVersion``, ``kind`` and ``metadata``.
    :param own_columns: ``columns`` is complete, without an implied NAME and AGE.
    :param has_status: ``status`` is written through the ``status`` subresource.
    :param counts_generation: ``metadata.generation`` counts changes of the desired state.
    :param work_factor: how much more work the validation of a value is than for other kinds.
    :param fields: for field selectors, in addition to name and namespace.
    :param unconditional_update: ``resourceVersion`` is optional in updates.
    :param stored: false for reviews, which are answered, and for read-only kinds.
    :param kept_as: the resource in the store, if it differs.
    :param server_made: clients may only read and delete; the error message for other verbs.
    :param terminating_status: merged into the status when deletion begins.
    :param held_by: returns the finalizers that delay the removal of a deleted object.
    :param carry_over: restores in the new object the fields that an update must not change.
    :param carry_status: the same for parts of the status, by the subresource.
    :param validate_status: returns the problems of a new status, after ``carry_status``.
    :param connects: subresources that open a stream, by name.
    :param confidential: messages must not quote the content of objects.
    :param texts: readable subresources in plain text, by name, with the schemas of their query
        parameters.
    :param requests: subresources that are created, answered and not stored.
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
    work_factor: int = 1
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
    text_types: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requests: Mapping[str, Kind] = field(default_factory=dict)
    initial_status: Mapping[str, Any] = field(default_factory=dict)
    server_fields: tuple[str, ...] = ()
    terminating_status: Mapping[str, Any] = field(default_factory=dict)
    held_by: Callable[[Object], list[str]] = _finalizers
    prepare: Callable[[Object], None] | None = None
    carry_over: Callable[[Object, Object], None] | None = None
    validate: Callable[[Object], list[Cause]] = _no_causes
    validate_update: Callable[[Object, Object], list[Cause]] = _no_update_causes
    carry_status: Callable[[str, Object, Object], None] | None = None
    validate_status: Callable[[Object, Object], list[Cause]] = _no_update_causes

    @cached_property
    def columns_by_priority(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """The columns that are always shown, and those of wide tables."""
        always = tuple(column for column in self.columns if not column.priority)
        return always, tuple(column for column in self.columns if column.priority)

    @cached_property
    def selectable(self) -> dict[str, Field]:
        """All fields for field selectors."""
        return {"metadata.name": _name, "metadata.namespace": _namespace, **self.fields}

    @property
    def status_subresources(self) -> tuple[str, ...]:
        """The subresources that write the status."""
        return ("status", *self.status_parts) if self.has_status else ()

    @property
    def listed(self) -> bool:
        """True if clients can list objects of this kind."""
        return self.stored or self.read_only

    @property
    def list_kind(self) -> str:
        """Kind of lists of these objects."""
        return f"{self.resource.kind}List"

"""
What a request asks for besides its object: the query, and the forms it accepts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api import fields, selectors
from twisted_exec.api.selectors import FieldSelector, LabelSelector
from twisted_exec.api.status import BadRequest, Expired, NotAcceptable

_LIMIT_ITEMS = 2**31 - 1


class Query:
    """The query of a URL, as twisted.web parses it."""

    def __init__(self, args: Mapping[bytes, list[bytes]]) -> None:
        self._args = args

    def text(self, name: str, default: str = "") -> str:
        """The first value of ``name``."""
        values = self._args.get(name.encode())
        return values[0].decode("utf-8", "replace") if values else default

    def texts(self, name: str) -> list[str]:
        """All values of ``name``."""
        return [value.decode("utf-8", "replace") for value in self._args.get(name.encode(), [])]

    def flag(self, name: str) -> bool:
        """As Go's conversion reads booleans: empty, 0 and false are false, all else is true."""
        given = self.texts(name)
        return bool(given) and given[0].lower() not in ("0", "false", "")

    def number(self, name: str, default: int = 0) -> int:
        """
        :raises BadRequest: neither a number nor absent, or negative.
        """
        text = self.text(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise BadRequest(f"{name} in the query is not a number: {fields.shown(text)}")
        return int(text)


@dataclass(frozen=True)
class Form:
    """In which form an answer is wanted.  ``shape``: ``""``, ``Table`` or ``Partial``."""

    shape: str = ""
    include: str = "Metadata"


def accepted(accept: str, include: str = "") -> Form:
    """
    Choose the first form that we have.

    :param accept: the header; empty means JSON.
    :param include: ``includeObject`` of the query, for tables.
    :raises NotAcceptable: we have none of them.
    """
    for media, parameters in media_ranges(accept):
        if media not in ("application/json", "application/*", "*/*"):
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return Form()
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") != "v1":
            continue
        if wanted == "Table":
            return Form("Table", include or "Metadata")
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Form("Partial")
    raise NotAcceptable("only the following media types are accepted: application/json")


def media_ranges(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The ranges of an ``Accept`` header with their parameters, in order."""
    ranges = []
    for item in (accept or "application/json").split(",")[:64]:
        media, *rest = item.split(";")
        parameters = {
            key.strip(): value.strip() for key, _, value in (one.partition("=") for one in rest)
        }
        ranges.append((media.strip().lower(), parameters))
    return ranges


@dataclass
class WriteOptions:
    """
    How a write is meant.

    :param warnings: filled by the write; shown to the user.
    """

    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


def write_options(query: Query, body: Mapping[str, Any] | None = None) -> WriteOptions:
    """
    :param body: of ``DeleteOptions``, whose ``dryRun`` counts as well.
    :raises BadRequest: a value that nobody defined.
    """
    told = (body or {}).get("dryRun") or []
    if not isinstance(told, list):
        raise BadRequest("dryRun is not a list")
    dry_run = query.texts("dryRun") + told
    if any(value != "All" for value in dry_run):
        raise BadRequest(
            f'dryRun: Unsupported value: {fields.shown(dry_run)}: supported values: "All"'
        )
    validation = query.text("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise BadRequest(
            f"fieldValidation: Unsupported value: {fields.shown(validation)}: "
            'supported values: "Ignore", "Strict", "Warn"'
        )
    return WriteOptions(bool(dry_run), validation)


@dataclass(frozen=True)
class ListOptions:
    """Which objects, and as of when."""

    labels: LabelSelector = LabelSelector()
    fields: FieldSelector = FieldSelector()
    limit: int = 0
    start: tuple[str, str] = ("", "")
    """Of a continued list: namespace and name after which to go on."""
    version: int | None = None
    """As of this resourceVersion exactly; ``None`` is now."""


def list_options(query: Query) -> ListOptions:
    """
    :raises BadRequest: something cannot be read.
    :raises Expired: the continue token is none of ours.
    """
    labels = selectors.parse_labels(query.text("labelSelector"))
    chosen = selectors.parse_fields(query.text("fieldSelector"))
    limit = min(query.number("limit"), _LIMIT_ITEMS)
    if token := query.text("continue"):
        version, start = read_continue(token)
        return ListOptions(labels, chosen, limit, start, version)
    exact = query.text("resourceVersionMatch") == "Exact"
    as_of = query.number("resourceVersion") if exact else None
    return ListOptions(labels, chosen, limit, version=as_of)


def continue_token(version: int, after: tuple[str, str]) -> str:
    """Where a paged list goes on."""
    return base64.urlsafe_b64encode(json.dumps([version, *after]).encode()).decode()


def read_continue(token: str) -> tuple[int, tuple[str, str]]:
    """
    :raises Expired: not a token of :func:`continue_token`.
    """
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError, RecursionError):
        raise Expired("The provided continue parameter is not valid: list again") from None
    if not isinstance(version, int) or not isinstance(namespace, str) or not isinstance(name, str):
        raise Expired("The provided continue parameter is not valid: list again")
    return version, (namespace, name)

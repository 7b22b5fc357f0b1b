"""
Options of a request: query parameters, options of writes, lists and watches, and the response form.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api import fields, selectors
from twisted_exec.api.fields import Cause
from twisted_exec.api.selectors import FieldSelector, LabelSelector
from twisted_exec.api.status import BadRequest, Expired, Invalid, NotAcceptable

MANAGER = "exec-apiserver"
"""Field manager of the server's own writes."""

_LIMIT_ITEMS = 2**31 - 1
_LARGEST_VERSION = 2**64 - 1
_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
# Random, so that clients do not all reconnect and list at once.
_LEAST_WATCH_SECONDS, _MOST_WATCH_SECONDS = 1800.0, 3600.0
_LIMIT_MANAGER_BYTES = 128

JSON_TYPES = ("application/json", "application/*", "*/*")
"""Media ranges that JSON satisfies."""

YAML = "application/yaml"

OBJECT, LIST = "PartialObjectMetadata", "PartialObjectMetadataList"
"""Kinds of the metadata-only forms of an object and a list."""

_VALIDATIONS = ("Ignore", "Strict", "Warn")

_LATEST = -1
"""In a token: continue at the current version."""


class Query:
    """The query of a URL, as twisted.web parses it."""

    def __init__(self, args: Mapping[bytes, list[bytes]]) -> None:
        self._args = args

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of ``name``."""
        values = self._args.get(name.encode())
        return values[0].decode("utf-8", "replace") if values else default

    def texts(self, name: str) -> list[str]:
        """Return all values of ``name``."""
        return [value.decode("utf-8", "replace") for value in self._args.get(name.encode(), [])]

    def flag(self, name: str) -> bool:
        """Parse a boolean as Go's conversion does."""
        values = self.texts(name)
        return bool(values) and values[0].lower() not in ("0", "false")

    def has(self, name: str) -> bool:
        """Return whether ``name`` is present, with any value."""
        return name.encode() in self._args

    def number(self, name: str, default: int = 0) -> int:
        """
        Parse a number.

        :raises BadRequest: it is not a number of at most 18 digits.
        """
        text = self.text(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise BadRequest(f"{name} in the query is not a number: {fields.shown(text)}")
        return int(text)

    def version(self, name: str = "resourceVersion") -> int | None:
        """
        Parse a resourceVersion; ``None`` if absent.

        :raises BadRequest: it is not valid.
        """
        text = self.text(name)
        if not text:
            return None
        if text.isascii() and text.isdigit() and len(text) <= 20:
            version = int(text)
            if version <= _LARGEST_VERSION:
                return version
        raise BadRequest(f"invalid resource version: {name}: Invalid value: {fields.shown(text)}")


@dataclass(frozen=True)
class ResponseForm:
    """Form of a response.  ``shape``: ``""``, ``Table`` or ``Partial``."""

    shape: str = ""
    include: str = "Metadata"
    is_yaml: bool = False


def accepted(
    accept: str,
    include: str = "",
    *,
    tables: bool = True,
    partial: Sequence[str] = (OBJECT, LIST),
    yaml: bool = True,
) -> ResponseForm:
    """
    Choose the available form that the client prefers.

    :param accept: the header; empty means JSON.
    :param include: ``includeObject`` of the query, for tables.
    :raises NotAcceptable: none is available.
    :raises BadRequest: ``includeObject`` has an unknown value.
    """
    for media, parameters in media_ranges(accept):
        is_yaml = media == YAML
        if media not in JSON_TYPES and not (is_yaml and yaml):
            continue
        requested = parameters.get("as", "")
        if not requested:
            return ResponseForm(is_yaml=is_yaml)
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") != "v1":
            continue
        if requested == "Table" and tables:
            return ResponseForm("Table", _included(include), is_yaml=is_yaml)
        if requested in partial:
            return ResponseForm("Partial", is_yaml=is_yaml)
        if requested in (OBJECT, LIST):
            actual = "a list" if requested == OBJECT else "not a list"
            raise NotAcceptable(f"you requested {requested}, but the requested object is {actual}")
    available = f"application/json, {YAML}" if yaml else "application/json"
    raise NotAcceptable(f"only the following media types are accepted: {available}")


def prefers_yaml(accept: str) -> bool:
    """Return whether a client prefers YAML to JSON."""
    ranges = (media for media, _ in media_ranges(accept))
    return next((media for media in ranges if media in (*JSON_TYPES, YAML)), "") == YAML


def _included(include: str) -> str:
    if include not in ("", "Metadata", "Object", "None"):
        raise BadRequest(
            f"Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{fields.shown(include)}: must be 'Metadata', 'Object', 'None', or empty"
        )
    return include or "Metadata"


def media_ranges(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Parse the media ranges of an ``Accept`` header, the preferred ones first."""
    ranges = []
    for item in (accept or "application/json").split(",")[:64]:
        media, *rest = item.split(";")
        parameters = {
            key.strip(): value.strip() for key, _, value in (each.partition("=") for each in rest)
        }
        ranges.append((media.strip().lower(), parameters))
    return sorted(ranges, key=_preference)


def _preference(media_range: tuple[str, dict[str, str]]) -> tuple[float, bool, bool]:
    media, parameters = media_range
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        weight = 1.0
    if not 0 <= weight <= 1:
        weight = 1.0  # not a number, too, which could not be sorted
    return -weight, media.startswith("*"), media.endswith("*")


@dataclass
class WriteOptions:
    """
    Options of a write.

    :param warnings: filled by the write; sent to the client.
    :param duplicates: paths of duplicate keys in the body.
    :param manager: the program that writes, for ``managedFields``.
    :param submitted: the options as the client sent them, for admission.
    :param advice: filled by admission; sent to the client even if the write is refused.
    """

    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    manager: str = ""
    submitted: Mapping[str, Any] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)


def write_options(
    query: Query, kind: str, body: Mapping[str, Any] | None = None, *, agent: str = ""
) -> WriteOptions:
    """
    Parse the options of a create, update or delete.

    :param body: a body of ``DeleteOptions``, whose ``dryRun`` counts too.
    :param agent: the ``User-Agent``; its beginning is the default of ``fieldManager``.
    :raises Invalid: an option is not valid.
    """
    options, causes = _write_options(query, agent, body or {})
    _refuse(kind, causes)
    return options


def patch_options(query: Query, *, agent: str = "", applying: bool = False) -> WriteOptions:
    """
    Parse the options of a patch.

    :param applying: a server-side apply, which requires a manager and may be forced.
    :raises Invalid: an option is not valid for this patch.
    """
    causes = []
    if applying and not query.text("fieldManager"):
        causes.append(fields.required("fieldManager", "is required for apply patch"))
    if not applying and query.texts("force"):
        causes.append(fields.forbidden("force", "may not be specified for non-apply patch"))
    options, more = _write_options(query, agent, {})
    _refuse("PatchOptions", causes + more)
    return options


def _write_options(
    query: Query, agent: str, body: Mapping[str, Any]
) -> tuple[WriteOptions, list[Cause]]:
    dry_run = query.texts("dryRun") + list(body.get("dryRun") or [])
    manager, validation = query.text("fieldManager"), query.text("fieldValidation")
    causes = _manager_causes(manager)
    if any(value != "All" for value in dry_run):
        causes.append(fields.not_supported("dryRun", dry_run, ["All"]))
    if validation not in ("", *_VALIDATIONS):
        causes.append(fields.not_supported("fieldValidation", validation, ["", *_VALIDATIONS]))
    options = {**body, "dryRun": dry_run, "fieldManager": manager, "fieldValidation": validation}
    # A grace period of 0 seconds differs from none.
    submitted = {key: value for key, value in options.items() if value or type(value) is int}
    manager = manager or _name_of(agent)
    return WriteOptions(
        bool(dry_run), validation or "Warn", manager=manager, submitted=submitted
    ), causes


def _refuse(kind: str, causes: list[Cause]) -> None:
    if causes:
        raise Invalid(kind, "", causes, "meta.k8s.io")


def _manager_causes(manager: str) -> list[Cause]:
    causes = []
    if len(manager.encode()) > _LIMIT_MANAGER_BYTES:
        causes.append(fields.too_long("fieldManager", _LIMIT_MANAGER_BYTES))
    for place, mark in enumerate(manager):
        if not mark.isprintable():
            message = f"invalid character U+{ord(mark):04X} (at position {place})"
            return [*causes, fields.invalid("fieldManager", manager, message)]
    return causes


def _name_of(agent: str) -> str:
    name = "".join(mark for mark in agent.partition("/")[0] if mark.isprintable())
    return name.encode()[:_LIMIT_MANAGER_BYTES].decode(errors="ignore")


@dataclass(frozen=True)
class ListOptions:
    """Selection and version of a list."""

    labels: LabelSelector = LabelSelector()
    fields: FieldSelector = FieldSelector()
    limit: int = 0
    start: tuple[str, str] = ("", "")
    """For a continued list: namespace and name of the last item before."""
    version: int | None = None
    """Exactly this resourceVersion; ``None`` for the current one."""
    at_least: int = 0
    """At least this resourceVersion."""
    stale: bool = False
    """A cached version is acceptable, even if outdated."""

    @property
    def selects(self) -> bool:
        """Return whether there is a selector."""
        return bool(self.terms)

    @property
    def terms(self) -> int:
        """Return the number of terms of both selectors."""
        return len(self.labels.requirements) + len(self.fields.terms)


def list_options(query: Query) -> ListOptions:
    """
    Parse the options of a list.

    The rules are those of ``k8s.io/apimachinery/pkg/apis/meta/internalversion/validation``.

    :raises APIError: the options are not valid.
    """
    _check(_list_causes(query))
    chosen, limit = selectors_of(query), _limit(query)
    query.number("timeoutSeconds")  # unused: lists are answered at once; only validated
    version, match = query.version(), query.text("resourceVersionMatch")
    if token := query.text("continue"):
        if version:
            raise BadRequest("specifying resource version is not allowed when using continue")
        then, start = read_continue(token)
        return ListOptions(chosen.labels, chosen.fields, limit, start, then)
    if match == _EXACT or (limit and version and not match):
        return ListOptions(chosen.labels, chosen.fields, limit, version=version)
    return ListOptions(
        chosen.labels, chosen.fields, limit, at_least=version or 0, stale=version == 0
    )


def _limit(query: Query) -> int:
    if re.fullmatch(r"-\d{1,18}", query.text("limit"), re.ASCII):
        return 0  # as in Kubernetes: no limit
    return min(query.number("limit"), _LIMIT_ITEMS)


def selectors_of(query: Query) -> ListOptions:
    """
    Parse the selectors only.

    :raises BadRequest: one is malformed.
    """
    labels = selectors.parse_labels(query.text("labelSelector"))
    return ListOptions(labels, selectors.parse_fields(query.text("fieldSelector")))


def _list_causes(query: Query) -> list[Cause]:
    match, causes, name = query.text("resourceVersionMatch"), [], "resourceVersionMatch"
    if match and not query.text("resourceVersion"):
        message = f"{name} is forbidden unless resourceVersion is provided"
        causes.append(fields.forbidden(name, message))
    if match and query.text("continue"):
        causes.append(fields.forbidden(name, f"{name} is forbidden when continue is provided"))
    if match not in ("", _EXACT, _NOT_OLDER):
        causes.append(fields.not_supported(name, match, [_EXACT, _NOT_OLDER, ""]))
    if match == _EXACT and query.text("resourceVersion") == "0":
        message = f'{name} "exact" is forbidden for resourceVersion "0"'
        causes.append(fields.forbidden(name, message))
    if query.has("sendInitialEvents"):
        message = "sendInitialEvents is forbidden for list"
        causes.append(fields.forbidden("sendInitialEvents", message))
    return causes


def _check(causes: list[Cause]) -> None:
    if causes:
        raise Invalid("ListOptions", "", causes, "meta.k8s.io")


@dataclass(frozen=True)
class WatchOptions:
    """
    Contents of a watch.

    :param version: with ``initial``, the oldest acceptable version of the initial objects; without,
        the version to start from, where 0 means now.
    :param initial: start with the existing objects.
    :param announce: mark the end of the initial objects.
    """

    chosen: ListOptions
    form: ResponseForm
    version: int
    initial: bool
    bookmarks: bool
    announce: bool
    seconds: float


def announces(query: Query) -> bool:
    """Return whether a watch asks for the initial objects and a mark at their end."""
    return query.flag("sendInitialEvents") and query.flag("allowWatchBookmarks")


def watch_options(query: Query, form: ResponseForm) -> WatchOptions:
    """
    Parse the options of a watch.

    :raises APIError: the options are not valid.
    """
    _check(_watch_causes(query))
    version = query.version() or 0
    has_initial = query.has("sendInitialEvents")
    seconds = float(query.number("timeoutSeconds"))
    if not 0 < seconds <= _MOST_WATCH_SECONDS:
        seconds = random.uniform(_LEAST_WATCH_SECONDS, _MOST_WATCH_SECONDS)
    return WatchOptions(
        selectors_of(query),
        form,
        version,
        query.flag("sendInitialEvents") if has_initial else not version,
        query.flag("allowWatchBookmarks"),
        announces(query),
        seconds,
    )


def _watch_causes(query: Query) -> list[Cause]:
    match, causes, name = query.text("resourceVersionMatch"), [], "resourceVersionMatch"
    has_initial = query.has("sendInitialEvents")
    if has_initial and match != _NOT_OLDER:
        message = f"sendInitialEvents requires setting {name} to {_NOT_OLDER}"
        causes.append(fields.forbidden(name, message))
    if match and not has_initial:
        message = f"{name} is forbidden for watch unless sendInitialEvents is provided"
        causes.append(fields.forbidden(name, message))
    if match not in ("", _NOT_OLDER):
        causes.append(fields.not_supported(name, match, [_NOT_OLDER]))
    if match and query.text("continue"):
        causes.append(fields.forbidden(name, f"{name} is forbidden when continue is provided"))
    return causes


class ContinueExpired(Expired):
    """
    A paged list was continued too late: its version is compacted.

    The Status contains a token to continue at the current version.
    """

    def __init__(self, after: tuple[str, str]) -> None:
        super().__init__(
            "The provided continue parameter is too old to display a consistent list result. You "
            "can start a new list without the continue parameter, or use the continue token in "
            "this response to retrieve the remainder of the results. Continuing with the provided "
            "token results in an inconsistent list - objects that were created, modified, or "
            "deleted between the time the first chunk was returned and now may show up in the "
            "list."
        )
        self._token = continue_token(_LATEST, after)

    def to_status(self) -> dict[str, Any]:
        return {**super().to_status(), "metadata": {"continue": self._token}}


def continue_token(version: int, after: tuple[str, str]) -> str:
    """Encode a position in a paged list, in the form of ``k8s.io/apiserver/pkg/storage``."""
    token = {"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(after) + "\0"}
    return base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")


def read_continue(token: str) -> tuple[int | None, tuple[str, str]]:
    """
    Decode a token.

    :return: the version (``None``: current), and namespace and name of the last item before.
    :raises BadRequest: it is not such a token.
    """
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        decoded = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        version, start = decoded["rv"], decoded["start"]
        namespace, slash, name = start.removesuffix("\0").partition("/")
        is_valid = decoded["v"] == "meta.k8s.io/v1" and slash and "/" not in name
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid or type(version) is not int or not _is_version(version):
        raise BadRequest("invalid continue token: continue key is not valid")
    return (None if version == _LATEST else version), (namespace, name)


def _is_version(version: int) -> bool:
    return version == _LATEST or 0 < version <= _LARGEST_VERSION

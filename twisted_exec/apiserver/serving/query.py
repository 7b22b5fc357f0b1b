"""
What a request asks for besides its object: the query, and the forms it accepts.
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
"""Who manages what this server writes of its own accord."""

_LIMIT_ITEMS = 2**31 - 1
_LARGEST_VERSION = 2**64 - 1
_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
# Clients come back at different times, so that they do not all list at once.
_LEAST_WATCH_SECONDS, _MOST_WATCH_SECONDS = 1800.0, 3600.0
_LIMIT_MANAGER_BYTES = 128


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
        """As Go's conversion reads booleans: absent, 0 and false are false, all else is true."""
        given = self.texts(name)
        return bool(given) and given[0].lower() not in ("0", "false")

    def has(self, name: str) -> bool:
        """Whether ``name`` is there, with whatever value."""
        return name.encode() in self._args

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

    def version(self, name: str = "resourceVersion") -> int | None:
        """
        A resourceVersion; ``None`` when none is given.

        :raises BadRequest: it is none.
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
class Form:
    """In which form an answer is wanted.  ``shape``: ``""``, ``Table`` or ``Partial``."""

    shape: str = ""
    include: str = "Metadata"


OBJECT, LIST = "PartialObjectMetadata", "PartialObjectMetadataList"
"""What the metadata alone of an object, and of a list, is called."""


def accepted(
    accept: str, include: str = "", *, tables: bool = True, partial: Sequence[str] = (OBJECT, LIST)
) -> Form:
    """
    Choose the first form that we have.

    :param accept: the header; empty means JSON.
    :param include: ``includeObject`` of the query, for tables.
    :param tables: whether what is asked for can be told as a Table.
    :param partial: what its metadata alone may be called.
    :raises NotAcceptable: we have none of them, or it was called something else.
    :raises BadRequest: nobody defined this ``includeObject``.
    """
    for media, parameters in media_ranges(accept):
        if media not in ("application/json", "application/*", "*/*"):
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return Form()
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") != "v1":
            continue
        if wanted == "Table" and tables:
            return Form("Table", _included(include))
        if wanted in partial:
            return Form("Partial")
        if wanted in (OBJECT, LIST):
            told = "a list" if wanted == OBJECT else "not a list"
            raise NotAcceptable(f"you requested {wanted}, but the requested object is {told}")
    raise NotAcceptable("only the following media types are accepted: application/json")


def _included(include: str) -> str:
    if include not in ("", "Metadata", "Object", "None"):
        raise BadRequest(
            f"Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{fields.shown(include)}: must be 'Metadata', 'Object', 'None', or empty"
        )
    return include or "Metadata"


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


_VALIDATIONS = ("Ignore", "Strict", "Warn")


@dataclass
class WriteOptions:
    """
    How a write is meant.

    :param warnings: filled by the write; shown to the user.
    :param duplicates: paths of keys that the body has more than once.
    :param manager: the program behind it, for ``managedFields``.
    :param told: the options as their client gave them, for whoever reviews the write.
    :param advice: filled by who reviews it; shown to the user even if the write is refused.
    """

    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    manager: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)


def write_options(
    query: Query, kind: str, body: Mapping[str, Any] | None = None, *, agent: str = ""
) -> WriteOptions:
    """
    The options of a create, an update or a delete.

    :param kind: of the options, such as ``CreateOptions``, by which a refusal calls them.
    :param body: of ``DeleteOptions``, whose ``dryRun`` counts as well.
    :param agent: the ``User-Agent``, which names the manager unless ``fieldManager`` does.
    :raises Invalid: a value that nobody defined.
    """
    options, causes = _write_options(query, agent, body or {})
    _refuse(kind, causes)
    return options


def patch_options(query: Query, *, agent: str = "", applying: bool = False) -> WriteOptions:
    """
    The options of a patch.

    :param applying: it is a server-side apply, whose manager must be named and
        which alone may be forced.
    :raises Invalid: as :func:`write_options`.
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
    given = {**body, "dryRun": dry_run, "fieldManager": manager, "fieldValidation": validation}
    # A grace of 0 seconds is another wish than none.
    told = {key: value for key, value in given.items() if value or type(value) is int}
    manager = manager or _name_of(agent)
    return WriteOptions(bool(dry_run), validation or "Warn", manager=manager, told=told), causes


def _refuse(kind: str, causes: list[Cause]) -> None:
    if causes:
        raise Invalid(kind, "", causes, "meta.k8s.io")


def _manager_causes(manager: str) -> list[Cause]:
    causes = []
    if len(manager.encode()) > _LIMIT_MANAGER_BYTES:
        causes.append(fields.too_long("fieldManager", _LIMIT_MANAGER_BYTES))
    for place, mark in enumerate(manager):
        if not mark.isprintable():
            told = f"invalid character U+{ord(mark):04X} (at position {place})"
            return [*causes, fields.invalid("fieldManager", manager, told)]
    return causes


def _name_of(agent: str) -> str:
    """A program's name: what is printable before the first slash, up to 128 bytes."""
    name = "".join(mark for mark in agent.partition("/")[0] if mark.isprintable())
    return name.encode()[:_LIMIT_MANAGER_BYTES].decode(errors="ignore")


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
    at_least: int = 0
    """Now must not be before this resourceVersion."""
    stale: bool = False
    """Now may be what is at hand, which others may have changed."""

    @property
    def selects(self) -> bool:
        """Whether there is a selector at all."""
        return bool(self.labels.requirements or self.fields.terms)


def list_options(query: Query) -> ListOptions:
    """
    Which resourceVersion is meant how is in ``k8s.io/apiserver/pkg/storage/interfaces.go``
    (``ValidateListOptions``), what may not be said together in
    ``k8s.io/apimachinery/pkg/apis/meta/internalversion/validation``.

    :raises BadRequest: something cannot be read.
    :raises Invalid: some of it contradicts the rest.
    """
    _check(_list_causes(query))
    chosen, limit = selectors_of(query), _limit(query)
    query.number("timeoutSeconds")  # a list is answered at once, but nonsense is refused
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
    The selectors alone.

    :raises BadRequest: one cannot be read.
    """
    labels = selectors.parse_labels(query.text("labelSelector"))
    return ListOptions(labels, selectors.parse_fields(query.text("fieldSelector")))


def _list_causes(query: Query) -> list[Cause]:
    match, causes, name = query.text("resourceVersionMatch"), [], "resourceVersionMatch"
    if match and not query.text("resourceVersion"):
        told = f"{name} is forbidden unless resourceVersion is provided"
        causes.append(fields.forbidden(name, told))
    if match and query.text("continue"):
        causes.append(fields.forbidden(name, f"{name} is forbidden when continue is provided"))
    if match not in ("", _EXACT, _NOT_OLDER):
        causes.append(fields.not_supported(name, match, [_EXACT, _NOT_OLDER, ""]))
    if match == _EXACT and query.text("resourceVersion") == "0":
        told = f'{name} "exact" is forbidden for resourceVersion "0"'
        causes.append(fields.forbidden(name, told))
    if query.has("sendInitialEvents"):
        told = "sendInitialEvents is forbidden for list"
        causes.append(fields.forbidden("sendInitialEvents", told))
    return causes


def _check(causes: list[Cause]) -> None:
    if causes:
        raise Invalid("ListOptions", "", causes, "meta.k8s.io")


@dataclass(frozen=True)
class WatchOptions:
    """
    What a watch tells.

    :param version: with ``initial``, what there is must not be older; without, tell what
        happened since.  0 is now.
    :param initial: begin with the objects that there are.
    :param bookmarks: tell now and then how far the watch has come.
    :param announce: tell when all objects that there are have been told.
    """

    chosen: ListOptions
    form: Form
    version: int
    initial: bool
    bookmarks: bool
    announce: bool
    seconds: float


def announces(query: Query) -> bool:
    """Whether a watch is asked to tell the objects that there are, and when that is done."""
    return query.flag("sendInitialEvents") and query.flag("allowWatchBookmarks")


def watch_options(query: Query, form: Form) -> WatchOptions:
    """
    :raises BadRequest: something cannot be read.
    :raises Invalid: some of it contradicts the rest.
    """
    _check(_watch_causes(query))
    version = query.version() or 0
    asked = query.has("sendInitialEvents")
    seconds = float(query.number("timeoutSeconds"))
    if not 0 < seconds <= _MOST_WATCH_SECONDS:
        seconds = random.uniform(_LEAST_WATCH_SECONDS, _MOST_WATCH_SECONDS)
    return WatchOptions(
        selectors_of(query),
        form,
        version,
        query.flag("sendInitialEvents") if asked else not version,
        query.flag("allowWatchBookmarks"),
        announces(query),
        seconds,
    )


def _watch_causes(query: Query) -> list[Cause]:
    match, causes, name = query.text("resourceVersionMatch"), [], "resourceVersionMatch"
    asked = query.has("sendInitialEvents")
    if asked and match != _NOT_OLDER:
        told = f"sendInitialEvents requires setting {name} to {_NOT_OLDER}"
        causes.append(fields.forbidden(name, told))
    if match and not asked:
        told = f"{name} is forbidden for watch unless sendInitialEvents is provided"
        causes.append(fields.forbidden(name, told))
    if match not in ("", _NOT_OLDER):
        causes.append(fields.not_supported(name, match, [_NOT_OLDER]))
    if match and query.text("continue"):
        causes.append(fields.forbidden(name, f"{name} is forbidden when continue is provided"))
    return causes


class ContinueExpired(Expired):
    """
    A paged list went on too late: what it was a list of is forgotten.

    The Status holds a token with which it goes on nevertheless, with what there is now.
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
        """As :meth:`APIError.to_status`."""
        return {**super().to_status(), "metadata": {"continue": self._token}}


_LATEST = -1
"""In a token: go on with what there is now."""


def continue_token(version: int, after: tuple[str, str]) -> str:
    """Where a paged list goes on, in the form that ``k8s.io/apiserver/pkg/storage`` gives it."""
    token = {"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(after) + "\0"}
    return base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")


def read_continue(token: str) -> tuple[int | None, tuple[str, str]]:
    """
    :return: the version, ``None`` for now, and namespace and name after which to go on.
    :raises BadRequest: not a token of :func:`continue_token`.
    """
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        told = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        version, start = told["rv"], told["start"]
        namespace, slash, name = start.removesuffix("\0").partition("/")
        known = told["v"] == "meta.k8s.io/v1" and slash and "/" not in name
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        known = False
    if not known or type(version) is not int or not _is_version(version):
        raise BadRequest("invalid continue token: continue key is not valid")
    return (None if version == _LATEST else version), (namespace, name)


def _is_version(version: int) -> bool:
    return version == _LATEST or 0 < version <= _LARGEST_VERSION

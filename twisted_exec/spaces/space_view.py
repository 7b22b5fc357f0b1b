"""
What a Space says to those who want to use it.  Nothing here does I/O.

Objects are read tolerantly: the ones that upstream's manager wrote have no conditions, and an imported
Space of its time has its Secrets in ``status``.

Which Space is meant by a name.  Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from twisted_exec.api import spaces as names
from twisted_exec.api.spaces import DEFAULT_PROVIDER, SPACES, namespace_of
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.kube.interfaces import Object
from twisted_exec.spaces.interfaces import SpaceName


class Named(Protocol):
    """What has a Space's name."""

    @property
    def name(self) -> SpaceName: ...


_T = TypeVar("_T", bound=Named)


class Directory(Generic[_T]):
    """Spaces by name, and then by namespace: each look is one into a dictionary."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, _T]] = {}

    def __iter__(self) -> Iterator[_T]:
        return iter([each for found in self._by_name.values() for each in found.values()])

    def at(self, name: str, namespace: str) -> _T | None:
        """The Space of a namespace and a name."""
        return self._by_name.get(name, {}).get(namespace)

    def put(self, entry: _T) -> None:
        """One more, or another in its place."""
        self._by_name.setdefault(entry.name.name, {})[entry.name.namespace] = entry

    def pop(self, name: str, namespace: str) -> _T | None:
        """It is there no more."""
        found = self._by_name.get(name, {})
        entry = found.pop(namespace, None)
        if not found:
            self._by_name.pop(name, None)
        return entry

    def find(self, name: str, provider: str = "") -> _T:
        """
        The Space that is meant.

        :param provider: of a SpaceProviderDesc, or the namespace that an imported Space is in; empty means
            the provider called ``default`` if that has it, else the one that has it.
        :raises NotFound: there is none.
        :raises Conflict: there are several.
        """
        found = self._by_name.get(name, {})
        chosen = found.get(namespace_of(provider or DEFAULT_PROVIDER))
        if chosen is None and provider:
            there = found.get(provider)
            chosen = there if there is not None and not there.name.provider else None
        if chosen is not None:
            return chosen
        if provider or not found:
            raise _not_found(name, provider, list(found.values()))
        if len(found) > 1:
            raise Conflict(
                f'there are several spaces "{name}": {_listed(list(found.values()))}; say whose is meant'
            )
        (chosen,) = found.values()
        return chosen


def _not_found(name: str, provider: str, others: list[_T]) -> NotFound:
    told = f'there is no space "{name}"'
    if provider:
        told += f' of the provider "{provider}"'
    if others:
        told += f"; there is {_listed(others)}"
    return NotFound(SPACES.plural, name, SPACES.group, message=told)


def _listed(entries: list[_T]) -> str:
    """Each as it is asked for; some, when there are many."""
    told = sorted(
        f'of provider "{each.name.provider}"'
        if each.name.provider
        else f'imported in namespace "{each.name.namespace}"'
        for each in entries
    )
    more = [f"and {len(told) - 5} more"] if len(told) > 5 else []
    return ", ".join([*told[:5], *more])


_TOLD = {names.IN_CLUSTER: "in-cluster", names.EXTERNAL: "external"}
_CONDITIONS = (names.PROVIDER_REACHABLE, names.PHYSICAL_SPACE_READY, names.CREDENTIALS_VALID)


@dataclass(frozen=True, order=True)
class SecretRef:
    """Which Secret of the cluster that has the Spaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"secret {self.namespace}/{self.name}"


@dataclass(frozen=True)
class SpaceView:
    """
    One Space from one viewpoint.

    :param physical_uid: of what it stands for; empty where nobody can tell.
    :param ready: it can be used, as the manager last saw.
    :param why_not: why it is not ready, for people.
    :param secret: where its kubeconfig is; ``None`` when there is none, and ``no_secret`` says why.
    """

    name: SpaceName
    uid: str
    physical_uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    ready: bool = False
    why_not: str = ""
    secret: SecretRef | None = None
    no_secret: str = ""

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f'space "{self.name}"'


def view_of(space: Object, viewpoint: str) -> SpaceView | None:
    """
    What a Space says.

    :param viewpoint: :data:`~twisted_exec.api.spaces.IN_CLUSTER` or
        :data:`~twisted_exec.api.spaces.EXTERNAL`.
    :return: ``None`` for one that is not where those of its provider are: whoever may write in some other
        namespace says nothing of that provider's Spaces.
    """
    metadata, status = space["metadata"], _mapping(space, "status")
    found = name_of(space)
    if found is None:
        return None
    secret, no_secret = secret_of(space, viewpoint)
    return SpaceView(
        name=found,
        uid=str(metadata.get("uid", "")),
        physical_uid=_text(status, "physicalUID"),
        labels=metadata.get("labels") or {},
        deleting=bool(metadata.get("deletionTimestamp")),
        ready=status.get("Phase") == names.READY,
        why_not=_why_not(status),
        secret=secret,
        no_secret=no_secret,
    )


def name_of(space: Object) -> SpaceName | None:
    """Which Space it is; ``None`` as of :func:`view_of`."""
    metadata, spec = space["metadata"], _mapping(space, "spec")
    namespace, provider = metadata.get("namespace", ""), ""
    if spec.get("Type", names.MANAGED) != names.IMPORTED:
        provider = _text(spec, "SpaceProviderDescName")
        if not provider or namespace != names.namespace_of(provider):
            return None
    return SpaceName(metadata["name"], provider, namespace)


def secret_of(space: Object, viewpoint: str) -> tuple[SecretRef | None, str]:
    """The Secret with a Space's kubeconfig for a viewpoint; or ``None``, and why there is none."""
    namespace = space["metadata"].get("namespace", "")
    told = _reference(space, viewpoint)
    if not told:
        return None, _missing(space, viewpoint)
    found = SecretRef(_text(told, "namespace") or namespace, _text(told, "name"))
    if found.namespace != namespace:
        # Else whoever may write Spaces here could use what they may not read there.
        return None, f"it names {found} of another namespace; put a copy beside the Space"
    return found, ""


def _reference(space: Object, viewpoint: str) -> Mapping[str, Any]:
    member, spec = names.REFERENCES[viewpoint], _mapping(space, "spec")
    if spec.get("Type") == names.IMPORTED and _text(_mapping(spec, member), "name"):
        return _mapping(spec, member)
    told = _mapping(_mapping(space, "status"), member)
    return told if _text(told, "name") else {}


def _missing(space: Object, viewpoint: str) -> str:
    told = _TOLD[viewpoint]
    (other,) = (each for each in names.VIEWPOINTS if each != viewpoint)
    scope = _mapping(space, "spec").get("accessscopetype", names.BOTH)
    if _reference(space, other):
        asked = "" if scope != other else f", as its accessscopetype is {other}"
        return (
            f"it has no {told} kubeconfig, only an {_TOLD[other]} one{asked}; use that viewpoint, or give "
            f"it the other one"
        )
    if _mapping(space, "spec").get("Type") == names.IMPORTED:
        return f"it names no Secret with a kubeconfig; set spec.{names.REFERENCES[viewpoint]}"
    return "it has no kubeconfig yet"


def _why_not(status: Mapping[str, Any]) -> str:
    """What the first condition that does not hold says."""
    phase = _text(status, "Phase") or names.INITIALIZING
    if phase == names.READY:
        return ""
    listed = status.get("conditions")
    told = {
        each.get("type"): each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
    }
    for name in _CONDITIONS:
        if told.get(name, {}).get("status", "True") != "True" and told[name].get("message"):
            return f"it is {phase}: {told[name]['message']}"
    return f"it is {phase}"


def _mapping(told: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = told.get(key)
    return value if isinstance(value, dict) else {}


def _text(told: Mapping[str, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""

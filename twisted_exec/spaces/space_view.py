"""A Space from one viewpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from twisted_exec.api import spaces as names
from twisted_exec.api.display import listed
from twisted_exec.api.spaces import DEFAULT_PROVIDER, SPACES, namespace_of
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.kube.interfaces import Object
from twisted_exec.spaces.interfaces import SpaceName


class Named(Protocol):
    """An object with a Space's name."""

    @property
    def name(self) -> SpaceName: ...


_T = TypeVar("_T", bound=Named)


class Directory(Generic[_T]):
    """Spaces by name and namespace."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, _T]] = {}

    def __iter__(self) -> Iterator[_T]:
        return iter([each for entries in self._by_name.values() for each in entries.values()])

    def at(self, name: str, namespace: str) -> _T | None:
        """Return the Space with a name in a namespace."""
        return self._by_name.get(name, {}).get(namespace)

    def put(self, entry: _T) -> None:
        """Add or replace a Space."""
        self._by_name.setdefault(entry.name.name, {})[entry.name.namespace] = entry

    def pop(self, name: str, namespace: str) -> _T | None:
        """Remove a Space."""
        entries = self._by_name.get(name, {})
        entry = entries.pop(namespace, None)
        if not entries:
            self._by_name.pop(name, None)
        return entry

    def find(self, name: str, provider: str = "") -> _T:
        """
        Return the Space with a name.

        :param provider: of a SpaceProviderDesc, or the namespace of an imported Space; empty as for
            :class:`~twisted_exec.spaces.interfaces.ISpaceClient`.
        :raises NotFound: there is no such Space.
        :raises Conflict: there are several such Spaces.
        """
        matches = self._by_name.get(name, {})
        chosen = matches.get(namespace_of(provider or DEFAULT_PROVIDER))
        if chosen is None and provider:
            imported = matches.get(provider)
            chosen = imported if imported is not None and not imported.name.provider else None
        if chosen is not None:
            return chosen
        if provider or not matches:
            raise _not_found(name, provider, list(matches.values()))
        if len(matches) > 1:
            raise Conflict(
                f'there are several spaces "{name}": {_listed(list(matches.values()))}; name the provider'
            )
        (chosen,) = matches.values()
        return chosen


def _not_found(name: str, provider: str, others: list[_T]) -> NotFound:
    message = f'there is no space "{name}"'
    if provider:
        message += f' of the provider "{provider}"'
    if others:
        message += f"; spaces of this name: {_listed(others)}"
    return NotFound(SPACES.plural, name, SPACES.group, message=message)


def _listed(entries: list[_T]) -> str:
    labels = sorted(
        f'of provider "{each.name.provider}"'
        if each.name.provider
        else f'imported in namespace "{each.name.namespace}"'
        for each in entries
    )
    return listed(labels, 5)


_VIEWPOINT_WORDS = {names.IN_CLUSTER: "in-cluster", names.EXTERNAL: "external"}
_CONDITIONS = (names.PROVIDER_REACHABLE, names.PHYSICAL_SPACE_READY, names.CREDENTIALS_VALID)


@dataclass(frozen=True, order=True)
class SecretRef:
    """Name of a Secret in the cluster with the Spaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"secret {self.namespace}/{self.name}"


@dataclass(frozen=True)
class SpaceView:
    """
    One Space from one viewpoint.

    :param physical_uid: UID of the physical space; empty if unknown.
    :param ready: the manager last observed the Space ready for use.
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
        """Name for messages."""
        return f'space "{self.name}"'


def view_of(space: Object, viewpoint: str) -> SpaceView | None:
    """
    Return a Space's view.

    :return: ``None`` for a Space outside its provider's namespace: write access to another
        namespace must not affect that provider's Spaces.
    """
    metadata, status = space["metadata"], _mapping(space, "status")
    name = name_of(space)
    if name is None:
        return None
    secret, no_secret = secret_of(space, viewpoint)
    return SpaceView(
        name=name,
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
    """Return the name of a Space; ``None`` as in :func:`view_of`."""
    metadata, spec = space["metadata"], _mapping(space, "spec")
    namespace, provider = metadata.get("namespace", ""), ""
    if spec.get("Type", names.MANAGED) != names.IMPORTED:
        provider = _text(spec, "SpaceProviderDescName")
        if not provider or namespace != names.namespace_of(provider):
            return None
    return SpaceName(metadata["name"], provider, namespace)


def secret_of(space: Object, viewpoint: str) -> tuple[SecretRef | None, str]:
    """Return the Secret with a Space's kubeconfig for a viewpoint, or ``None`` and the reason."""
    namespace = space["metadata"].get("namespace", "")
    reference = _reference(space, viewpoint)
    if not reference:
        return None, _missing(space, viewpoint)
    secret = SecretRef(_text(reference, "namespace") or namespace, _text(reference, "name"))
    if secret.namespace != namespace:
        # Otherwise authors of Spaces could use Secrets of other namespaces that they cannot read.
        return None, f"it names {secret} in another namespace; copy it to the Space's namespace"
    return secret, ""


def _reference(space: Object, viewpoint: str) -> Mapping[str, Any]:
    member, spec = names.REFERENCES[viewpoint], _mapping(space, "spec")
    if spec.get("Type") == names.IMPORTED and _text(_mapping(spec, member), "name"):
        return _mapping(spec, member)
    reference = _mapping(_mapping(space, "status"), member)
    return reference if _text(reference, "name") else {}


def _missing(space: Object, viewpoint: str) -> str:
    word = _VIEWPOINT_WORDS[viewpoint]
    (other,) = (each for each in names.VIEWPOINTS if each != viewpoint)
    scope = _mapping(space, "spec").get("accessscopetype", names.BOTH)
    if _reference(space, other):
        cause = "" if scope != other else f", as its accessscopetype is {other}"
        return (
            f"it has no {word} kubeconfig, only an {_VIEWPOINT_WORDS[other]} one{cause}; use that viewpoint, or give "
            f"it the other one"
        )
    if _mapping(space, "spec").get("Type") == names.IMPORTED:
        return f"it names no Secret with a kubeconfig; set spec.{names.REFERENCES[viewpoint]}"
    return "it has no kubeconfig yet"


def _why_not(status: Mapping[str, Any]) -> str:
    phase = _text(status, "Phase") or names.INITIALIZING
    if phase == names.READY:
        return ""
    listed = status.get("conditions")
    conditions = {
        each.get("type"): each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
    }
    for value in ("False", "Unknown"):
        for name in _CONDITIONS:
            condition = conditions.get(name, {})
            if condition.get("status") == value and condition.get("message"):
                return f"it is {phase}: {condition['message']}"
    return f"it is {phase}"


def _mapping(obj: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = obj.get(key)
    return value if isinstance(value, dict) else {}


def _text(obj: Mapping[str, Any], key: str) -> str:
    value = obj.get(key)
    return value if isinstance(value, str) else ""

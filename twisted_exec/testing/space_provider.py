"""
A provider of physical spaces in memory, which creates and deletes at once, or as a test wants.

It passes the contract suite of :class:`~twisted_exec.spacemanager.interfaces.ISpaceProvider`
(``tests/contracts``).  Kubeconfigs lead to :attr:`MemorySpaces.server`; by default there is no
server.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from twisted_exec.api.spaces import VIEWPOINTS
from twisted_exec.api.status import AlreadyExists, APIError, BadRequest, Conflict, NotFound
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    IRotatesCredentials,
    ISpaceProvider,
    Physical,
    SpaceInfo,
    SpaceRequest,
)

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
Changed = Callable[[Physical | None], None]
_T = TypeVar("_T")


@dataclass
class MemorySpace:
    """
    One physical space.

    :ivar state: as in :class:`SpaceInfo`.
    :ivar viewpoints: from which it can be reached; none while its access is yet to come.
    :ivar generation: of its credentials.
    """

    owner: str = ""
    state: str = USABLE
    reason: str = ""
    message: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    viewpoints: Sequence[str] = VIEWPOINTS
    generation: int = 1
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))


class MemorySpaces:
    """
    A provider's physical spaces.

    :param parents: the places besides the default.
    """

    def __init__(self, parents: Sequence[str] = ()) -> None:
        self.parents = parents
        self.spaces: dict[Physical, MemorySpace] = {}
        self.problem: APIError | None = None
        """While set, calls fail with it."""
        self.stalled = False
        """While true, no call is answered."""
        self.held = False
        """While true, what is created stays Building, and what is deleted stays Going."""
        self.lived: int | None = None
        """How many more creations and deletions have an effect; ``None`` for all."""
        self.calls: list[tuple[str, Physical | None]] = []
        """The calls so far: name, and what the call is about."""
        self.server: Callable[[Physical], str] = lambda physical: f"https://127.0.0.1:1/{physical}"
        """Returns the address of the API server of a space."""
        self._following: list[Changed] = []

    def provider(self) -> MemoryProvider:
        """Return a new provider."""
        return MemoryProvider(self)

    def put(self, physical: Physical, space: MemorySpace | None = None) -> MemorySpace:
        """Add a space, as another program would, and notify watchers."""
        added = self.spaces[physical] = space or MemorySpace()
        self.tell(physical)
        return added

    def drop(self, physical: Physical) -> None:
        """Remove a space and notify watchers."""
        self.spaces.pop(physical, None)
        self.tell(physical)

    def release(self) -> None:
        """Complete the creations and deletions that are held."""
        self.held = False
        for physical, space in list(self.spaces.items()):
            if space.state == GOING:
                self.drop(physical)
            elif space.state == BUILDING:
                space.state = USABLE
                self.tell(physical)

    def follow(self, changed: Changed) -> Callable[[], None]:
        """Call ``changed`` at each change; return a function that ends this."""
        self._following.append(changed)
        return lambda: self._following.remove(changed) if changed in self._following else None

    def tell(self, physical: Physical | None = None) -> None:
        """Tell watchers that something may have changed."""
        for changed in list(self._following):
            changed(physical)

    def info(self, physical: Physical) -> SpaceInfo:
        """
        Return a space as its provider reports it.

        :raises NotFound: there is no such space.
        """
        space = self.spaces.get(physical)
        if space is None:
            raise NotFound(
                "spaces", str(physical), message=f"there is no space {str(physical)[:80]!r}"
            )
        viewpoints = space.viewpoints if space.state == USABLE else ()
        return SpaceInfo(
            physical,
            space.state,
            space.reason,
            space.message,
            space.owner,
            space.uid,
            f"{space.uid}-{space.generation}-{space.state}-{len(viewpoints)}",
            {each: Access(self.kubeconfig(physical, space)) for each in viewpoints},
        )

    def kubeconfig(self, physical: Physical, space: MemorySpace) -> bytes:
        """Return the kubeconfig of a space, with a token of its own."""
        token = f"token-{space.uid}-{space.generation}"
        context = {"cluster": "space", "user": "space"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "space", "cluster": {"server": self.server(physical)}}],
            "users": [{"name": "space", "user": {"token": token}}],
            "contexts": [{"name": "space", "context": context}],
            "current-context": "space",
        }
        return json.dumps(config).encode()


@implementer(ISpaceProvider, IRotatesCredentials)
class MemoryProvider:
    """A provider over :class:`MemorySpaces`."""

    default_parent = ""

    def __init__(self, spaces: MemorySpaces) -> None:
        self._spaces = spaces
        self._stops: list[Callable[[], None]] = []
        self.closed = False

    def create(self, physical: Physical, request: SpaceRequest) -> Deferred[None]:
        """As :meth:`ISpaceProvider.create`; the only parameter is ``size``."""
        return self._called("create", physical, lambda: self._create(physical, request))

    def delete(self, physical: Physical, owner: str) -> Deferred[None]:
        return self._called("delete", physical, lambda: self._delete(physical, owner))

    def list_spaces(self) -> Deferred[Sequence[SpaceInfo]]:
        every = self._spaces
        return self._called(
            "list_spaces", None, lambda: [every.info(p) for p in sorted(every.spaces)]
        )

    def list_names(self) -> Deferred[Sequence[Physical]]:
        return self._called("list_names", None, lambda: sorted(self._spaces.spaces))

    def get(self, physical: Physical) -> Deferred[SpaceInfo]:
        return self._called("get", physical, lambda: self._spaces.info(physical))

    def rotate(self, physical: Physical) -> Deferred[None]:
        return self._called("rotate", physical, lambda: self._rotate(physical))

    def watch(self, changed: Changed) -> Callable[[], None]:
        stop = self._spaces.follow(changed)
        self._stops.append(stop)
        return stop

    def close(self) -> Deferred[None]:
        self.closed = True
        for stop in self._stops:
            stop()
        return succeed(None)

    def _called(self, name: str, physical: Physical | None, act: Callable[[], _T]) -> Deferred[_T]:
        self._spaces.calls.append((name, physical))
        if self._spaces.stalled:
            return Deferred()
        try:
            if self._spaces.problem is not None:
                raise self._spaces.problem
            return succeed(act())
        except APIError as error:
            return fail(error)
        except _Killed:
            return Deferred()

    def _create(self, physical: Physical, desired: SpaceRequest) -> None:
        self._check(physical)
        if unknown := set(desired.parameters) - {"size"}:
            raise BadRequest(f"{physical}: there is no parameter {min(unknown)}; there is size")
        existing = self._spaces.spaces.get(physical)
        if existing is not None and existing.owner != desired.owner:
            raise AlreadyExists("spaces", str(physical))
        if existing is None or existing.state == BROKEN:
            self._step()
            state = BUILDING if self._spaces.held else USABLE
            self._spaces.put(
                physical, MemorySpace(desired.owner, state, parameters=desired.parameters)
            )

    def _delete(self, physical: Physical, owner: str) -> None:
        existing = self._spaces.spaces.get(physical)
        if existing is None:
            return
        if existing.owner != owner:
            raise Conflict(f"the space {physical} was not made for this Space: it is not deleted")
        self._step()
        if self._spaces.held:
            existing.state = GOING
            self._spaces.tell(physical)
        else:
            self._spaces.drop(physical)

    def _rotate(self, physical: Physical) -> None:
        self._spaces.info(physical)
        self._spaces.spaces[physical].generation += 1
        self._spaces.tell(physical)

    def _check(self, physical: Physical) -> None:
        if not _NAME.fullmatch(physical.name):
            raise BadRequest(
                f"{physical.name[:80]!r} cannot be the name of a space: it is no DNS label"
            )
        if physical.parent and physical.parent not in self._spaces.parents:
            raise BadRequest(f"{physical}: there is no place {physical.parent!r}")

    def _step(self) -> None:
        if self._spaces.lived is not None:
            self._spaces.lived -= 1
            if self._spaces.lived < 0:
                raise _Killed


class _Killed(Exception):
    """The manager is dead as far as the provider can tell."""

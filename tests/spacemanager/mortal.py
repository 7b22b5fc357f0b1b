"""
Managers that are killed: from some step on, their calls have no effect and get no answer.

A step is a write to the hub, or a call that changes a provider's spaces.  The last step takes
effect or not; either way its Deferred never fires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.interfaces import (
    IRotatesCredentials,
    ISpaceProvider,
    MakeProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceRequest,
)

QUIET = ("events", "leases")
"""Resources whose writes do not count as steps."""


class Life:
    """
    The lifetime of a manager.

    :param steps: the number of complete steps; ``None`` for no limit.
    :param had: whether the step after them still takes effect.
    :ivar last: the step at which the manager was killed.
    """

    def __init__(self, steps: int | None = None, *, had: bool = False) -> None:
        self._left, self._had = steps, had
        self.is_over = False
        self.last = ""

    def step(self, what: str, act: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        if self.is_over:
            return Deferred()
        if self._left == 0:
            self.is_over, self.last = True, what
            if self._had:
                act().addErrback(lambda _: None)
            return Deferred()
        if self._left is not None:
            self._left -= 1
        return act()

    def look(self, act: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        return Deferred() if self.is_over else act()


@implementer(IKubeClient)
class MortalClient:
    """A client of a manager that may be killed."""

    def __init__(self, client: Any, life: Life) -> None:
        self._client, self._life = client, life

    def look(self) -> int:
        return 0

    def groups(self) -> Deferred[list[str]]:
        return self._life.look(self._client.groups)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Deferred[Object]:
        return self._life.look(lambda: self._client.get(resource, name, namespace))

    def list(self, resource: Resource, namespace: str = "", **more: Any) -> Deferred[Object]:
        return self._life.look(lambda: self._client.list(resource, namespace, **more))

    def watch(
        self,
        resource: Resource,
        on_event: Callable[[str, Object], None],
        namespace: str = "",
        **more: Any,
    ) -> Deferred[None]:
        def hear(kind: str, obj: Object) -> None:
            if not self._life.is_over:
                on_event(kind, obj)

        return self._life.look(lambda: self._client.watch(resource, hear, namespace, **more))

    def create(self, resource: Resource, obj: Object, *rest: Any, **more: Any) -> Deferred[Object]:
        what = f"create {resource.plural}"
        return self._write(
            what, resource, lambda: self._client.create(resource, obj, *rest, **more)
        )

    def update(self, resource: Resource, obj: Object, *rest: Any, **more: Any) -> Deferred[Object]:
        what = f"update {resource.plural} {more.get('subresource', '')}"
        return self._write(
            what, resource, lambda: self._client.update(resource, obj, *rest, **more)
        )

    def patch(self, resource: Resource, name: str, *rest: Any, **more: Any) -> Deferred[Object]:
        what = f"patch {resource.plural} {more.get('subresource', '')}"
        return self._write(
            what, resource, lambda: self._client.patch(resource, name, *rest, **more)
        )

    def delete(self, resource: Resource, name: str, *rest: Any, **more: Any) -> Deferred[Object]:
        what = f"delete {resource.plural}"
        return self._write(
            what, resource, lambda: self._client.delete(resource, name, *rest, **more)
        )

    def _write(
        self, what: str, resource: Resource, act: Callable[[], Deferred[Any]]
    ) -> Deferred[Any]:
        if resource.plural in QUIET:
            return self._life.look(act)
        return self._life.step(what, act)


@implementer(ISpaceProvider, IRotatesCredentials)
class MortalProvider:
    """An adaptor of a manager that may be killed."""

    default_parent = ""

    def __init__(self, provider: Any, life: Life) -> None:
        self._provider, self._life = provider, life

    def create(self, physical: Physical, wanted: SpaceRequest) -> Deferred[None]:
        return self._life.step("make", lambda: self._provider.create(physical, wanted))

    def delete(self, physical: Physical, owner: str) -> Deferred[None]:
        return self._life.step("unmake", lambda: self._provider.delete(physical, owner))

    def rotate(self, physical: Physical) -> Deferred[None]:
        return self._life.step("rotate", lambda: self._provider.rotate(physical))

    def list_spaces(self) -> Deferred[Any]:
        return self._life.look(self._provider.list_spaces)

    def list_names(self) -> Deferred[Any]:
        return self._life.look(self._provider.list_names)

    def get(self, physical: Physical) -> Deferred[Any]:
        return self._life.look(lambda: self._provider.get(physical))

    def watch(self, changed: Callable[[Physical | None], None]) -> Callable[[], None]:
        def hear(physical: Physical | None) -> None:
            if not self._life.is_over:
                changed(physical)

        stop: Callable[[], None] = self._provider.watch(hear)
        return stop

    def close(self) -> Deferred[None]:
        closed: Deferred[None] = self._provider.close()
        return closed


def mortal(make: MakeProvider, life: Life) -> MakeProvider:
    """Wrap the adaptors of a manager that may be killed."""

    def made(spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
        inner = make(spec, around)
        provider: ISpaceProvider = MortalProvider(inner, life)
        return provider if IRotatesCredentials.providedBy(inner) else plain(provider)

    return made


def plain(provider: Any) -> ISpaceProvider:
    """Wrap an adaptor so that it cannot rotate credentials."""
    found: ISpaceProvider = Unrotated(provider)
    return found


@implementer(ISpaceProvider)
class Unrotated:
    """An adaptor without the optional interfaces."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

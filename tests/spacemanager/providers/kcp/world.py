"""
The provider contract's world for a kcp server, fake or real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred

from tests.contracts.space_world import SpaceWorld
from tests.spacemanager.providers.kcp.played import SERVING, PlayedKcp
from tests.spacemanager.providers.steps import Steps
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.kube.transport import Answer, HTTPTransport, Request
from twisted_exec.spacemanager.interfaces import ISpaceProvider, Physical, ProviderSpec
from twisted_exec.spacemanager.providers.kcp.provider import KcpProvider
from twisted_exec.spacemanager.providers.kcp.settings import kcp_settings

reactor: Any = _reactor

CANNOT = {
    "partial": "Both viewpoints are properties of the server: one that is missing in the provider's Secret is missing for all workspaces.",
    "broken": "A workspace is never permanently broken: Unavailable is temporary.",
    "no_parents": "It has parents.",
}


class Counted:
    """A client's transport that counts requests; writes are steps."""

    def __init__(self, inner: HTTPTransport, steps: Steps) -> None:
        self._inner, self._steps = inner, steps

    @property
    def config(self) -> ClientConfig:
        return self._inner.config

    def close(self) -> Deferred[None]:
        return self._inner.close()

    async def collect(self, request: Request, **limits: Any) -> Answer:
        return await self._counted(request, self._inner.collect(request, **limits))

    async def stream(self, request: Request, *told: Any, **limits: Any) -> Answer:
        return await self._counted(request, self._inner.stream(request, *told, **limits))

    async def _counted(self, request: Request, asking: Any) -> Answer:
        what = f"{request.method} {request.target}"
        self._steps.open.append(what)
        try:
            if request.method == "GET":
                self._steps.count += 1  # waiting for a slow kcp must not add steps without end
            else:
                await self._steps.begin()
            answer: Answer = await asking
            return answer
        finally:
            asking.close()
            self._steps.open.remove(what)


class KcpWorld(SpaceWorld):
    """The common part of the worlds for a fake and a real kcp."""

    cannot: Mapping[str, str] = CANNOT  # type: ignore[misc]
    no_parameters = (
        {"no-such-parameter": "x"},
        {"type": "../x"},
        {"typePath": "root"},
        {"type": "no-such-type"},
    )

    def __init__(self) -> None:
        self.steps = Steps()
        self.clock: Any = reactor
        self.later = 0.0  # seconds that providers are ahead of the clock

    def secret(self) -> Mapping[str, bytes]:
        """Return the provider's current Secret."""
        raise NotImplementedError

    def make(self) -> ISpaceProvider:
        spec = ProviderSpec("lab", "kcp", self.secret(), "default/kcp")
        told = kcp_settings(spec)
        client = KubeClient(told.config, reactor, timeout_seconds=600)
        client._http = Counted(client._http, self.steps)  # type: ignore[assignment]
        return KcpProvider(spec, told, client, self.clock, self.now)

    def now(self) -> float:
        return float(reactor.seconds()) + self.later

    def calls(self) -> int:
        return self.steps.count

    def left(self) -> Sequence[str]:
        return self.steps.open

    async def die_after(self, steps: int) -> None:
        self.steps.lived = steps

    def died(self) -> bool:
        return self.steps.held_back

    async def live(self) -> None:
        self.steps.lived, self.steps.held_back = None, False


def kubeconfig(server: str, token: str, ca: bytes = SERVING.certificate_pem) -> bytes:
    """Return a kubeconfig of an administrator."""
    return written(ClientConfig(server, ca=Material(data=ca), token=token), "root")


class PlayedWorld(KcpWorld):
    """The world for the fake kcp."""

    title = "kcp, recorded"
    parents = ("root:one", "root:two")
    default = "root:lab"
    """Where its kubeconfig leads: the places are no spaces of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.kcp = PlayedKcp(self.default, *self.parents)

    async def start(self) -> None:
        self.kcp.listen()

    async def stop(self) -> None:
        await self.kcp.stop()

    def secret(self) -> Mapping[str, bytes]:
        return {
            "kubeconfig": kubeconfig(
                f"{self.kcp.url}/clusters/{self.default}", self.kcp.admin or "old"
            ),
            "incluster": kubeconfig(f"{self.kcp.inside}/clusters/{self.default}", "never-used"),
        }

    async def make_foreign(self, physical: Physical) -> None:
        self.kcp.put(physical.parent or self.default, physical.name)

    async def vanish(self, physical: Physical) -> None:
        self.kcp.drop(physical.parent or self.default, physical.name)

    async def there(self) -> Sequence[Physical]:
        found = []
        for path in set(self.kcp.paths()) - {self.default, *self.parents}:
            parent, _colon, name = path.rpartition(":")
            found.append(Physical(name, "" if parent == self.default else parent))
        return sorted(found)

    async def hold(self) -> None:
        self.kcp.held = True

    async def release(self) -> None:
        self.kcp.held = False

    async def hide_access(self, physical: Physical) -> None:
        cluster = self.kcp.at(f"{physical.parent or self.default}:{physical.name}")
        assert cluster is not None
        cluster.has.objects.clear()
        cluster.no_accounts = True

    async def show_access(self, physical: Physical) -> None:
        cluster = self.kcp.at(f"{physical.parent or self.default}:{physical.name}")
        assert cluster is not None
        cluster.no_accounts = False

    async def break_down(self) -> None:
        await self.kcp.leave()

    async def come_back(self) -> None:
        self.kcp.stalled = self.kcp.nonsense = False
        await self.kcp.leave()
        self.kcp.listen()

    async def stall(self) -> None:
        self.kcp.stalled = True

    async def talk_nonsense(self) -> None:
        self.kcp.nonsense = True

    async def revoke(self) -> None:
        self.kcp.revoke()

    async def renew(self) -> None:
        self.kcp.renew()

    async def forbid(self) -> None:
        self.kcp.forbidden = True

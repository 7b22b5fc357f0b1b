"""
The provider contract's world for a fake kind: the program is ``fake_kind.sh``, and one server of
the test stands in for the API servers of all clusters, which it tells apart by their tokens.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.web import resource, server
from twisted.web.http import Request

from tests.contracts.space_world import SpaceWorld, pause
from tests.spacemanager.providers.kcp.played import CERTIFICATE, SERVING
from tests.spacemanager.providers.steps import Steps
from twisted_exec.api.spaces import IN_CLUSTER
from twisted_exec.spacemanager.interfaces import Access, ISpaceProvider, Physical
from twisted_exec.spacemanager.providers.kind.cli import CompletedRun, KindCli
from twisted_exec.spacemanager.providers.kind.provider import KindProvider
from twisted_exec.spacemanager.providers.kind.records import CREATING, ClusterRecord, Records
from twisted_exec.spacemanager.providers.kind.settings import KindSettings

reactor: Any = _reactor
FAKE = Path(__file__).with_name("fake_kind.sh")

CANNOT = {
    "down_while_made": "If docker stops while kind creates a cluster, kind gives up: the cluster is Broken and is created again.",
    "revoked": "kind has no credentials: it uses the docker of this host.",
    "rotated": "kind has no credentials: it uses the docker of this host.",
    "forbidden": "kind has no credentials: without permission for docker, docker is reported as unreachable.",
    "rotates": "kind's kubeconfigs are those of the cluster administrator and are not renewed.",
    "access_late": "A cluster without a kubeconfig is not usable yet: it is Building.",
    "partial": "Either every cluster has both viewpoints, or none has the second one.",
    "parents": "It has no parents.",
}


def read_cluster(directory: Path, name: str) -> dict[str, str]:
    """Return the files of a cluster with their text; empty if it does not exist."""
    try:
        files = list((directory / "clusters" / name).iterdir())
        return {file.name: file.read_text().strip() for file in files}
    except FileNotFoundError:
        return {}


def cluster_names(directory: Path) -> list[str]:
    """Return the sorted names of all clusters."""
    return sorted(path.name for path in (directory / "clusters").iterdir())


class PlayedClusters(resource.Resource):
    """The API servers of all clusters in a directory of the fake program."""

    isLeaf = True

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def render(self, request: Request) -> bytes:
        told = (request.getHeader("authorization") or "").removeprefix("Bearer ")
        found = (read_cluster(self._directory, name) for name in cluster_names(self._directory))
        cluster = next((each for each in found if each.get("token") == told), {})
        # Drop a prefix of the path: the token identifies the cluster.
        path = re.sub(r"^/.*(/readyz|/apis?/)", r"\1", request.path.decode())  # type: ignore[union-attr]
        code, answer = self._answer(cluster, path.removeprefix("/"))
        request.setResponseCode(code)
        return json.dumps(answer).encode()

    def _answer(self, cluster: dict[str, str], path: str) -> tuple[int, Any]:
        if not cluster:
            return 401, {"kind": "Status", "code": 401, "message": "Unauthorized"}
        if path == "readyz":
            return (200 if cluster["state"] == "ready" else 500), {}
        if path == "api/v1/namespaces/kube-system":
            return 200, {"metadata": {"name": "kube-system", "uid": cluster["uid"]}}
        if path == "api/v1/nodes":
            nodes = [
                {"metadata": {"name": f"node-{number}", "labels": node.get("labels") or {}}}
                for number, node in enumerate(json.loads(cluster["config"])["nodes"])
            ]
            return 200, {"metadata": {}, "items": nodes}
        if path.endswith("selfsubjectreviews"):
            return 200, {"metadata": {}, "status": {"userInfo": {"username": "kubernetes-admin"}}}
        return 404, {"kind": "Status", "code": 404, "message": "not found"}


class CountedCli(KindCli):
    """A KindCli whose runs count as steps."""

    def __init__(self, steps: Steps, environ: Mapping[str, str], program: str) -> None:
        super().__init__(reactor, environ, program)
        self._steps = steps

    async def run(self, *words: str, seconds: float) -> CompletedRun:
        self._steps.open.append(" ".join(words))
        try:
            await self._steps.begin()
            return await super().run(*words, seconds=seconds)
        finally:
            self._steps.open.remove(" ".join(words))

    def make(
        self, words: Sequence[str], code: str, log: str, lock: int, ended: Callable[[], None]
    ) -> int:
        self._steps.take()
        return super().make(words, code, log, lock, ended)


class KindWorld(SpaceWorld):
    """
    :param directory: scratch.
    """

    title = "kind, recorded"
    cannot = CANNOT
    no_parameters = ({"no-such-parameter": "x"}, {"image": "example.org/root:1"}, {"image": "-x"})
    parameters = {"image": "kindest/node:v1.33.1"}

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory).absolute()
        self.kind = self.directory / "fake"
        self.steps = Steps()
        self.settings = KindSettings(internal=True)
        self.later = 0.0  # seconds that providers are ahead of the clock
        self._port: Any = None
        self._foreign = 0

    async def start(self) -> None:
        (self.kind / "clusters").mkdir(parents=True)
        (self.kind / "calls").write_text("")
        site = server.Site(PlayedClusters(self.kind))
        site.noisy = False
        self._port = reactor.listenSSL(0, site, CERTIFICATE.options(), interface="127.0.0.1")
        number = self._port.getHost().port
        ca = base64.b64encode(SERVING.certificate_pem).decode()
        told = (f"https://127.0.0.1:{number}", f"https://localhost:{number}", ca, "")
        (self.kind / "server").write_text("\n".join(told))
        shutil.copy(FAKE, self.kind / "kind")
        (self.kind / "kind").chmod(0o755)

    async def stop(self) -> None:
        if self._port is None:
            return
        for name in self._there():
            shutil.rmtree(self.kind / "clusters" / name)
        self.mode()
        await self._port.stopListening()

    def environ(self) -> Mapping[str, str]:
        """Return the environment of the manager."""
        path = f"{self.kind}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "FAKE_KIND": str(self.kind), "KUBECONFIG": "/x"}

    def make(self) -> ISpaceProvider:
        cli = CountedCli(self.steps, self.environ(), "kind")
        records = Records(str(self.directory / "records"), self.steps.take)
        return KindProvider(self.settings, cli, records, reactor, self.now, poll_seconds=0.05)

    def now(self) -> float:
        return float(reactor.seconds()) + self.later

    async def watching(self, adaptor: Any) -> None:
        while adaptor._poll._seen is None:
            await pause(0.01)

    def mode(self, *words: str) -> None:
        """Set how the program behaves from now on."""
        (self.kind / "mode.new").write_text(" ".join(words) + "\n")
        (self.kind / "mode.new").rename(self.kind / "mode")

    def _there(self) -> list[str]:
        return cluster_names(self.kind)

    def put(self, name: str, **more: str) -> None:
        """Create a cluster that belongs to another user."""
        self._foreign += 1
        told = {"state": "ready", "config": '{"nodes": [{}]}', **more}
        told |= {key: f"{key}-of-foreign-{self._foreign}" for key in ("token", "uid")}
        new = self.kind / f"put-{name}"
        new.mkdir()
        for file, text in told.items():
            (new / file).write_text(f"{text}\n")
        new.rename(self.kind / "clusters" / name)

    async def make_foreign(self, physical: Physical) -> None:
        self.put(physical.name)

    async def vanish(self, physical: Physical) -> None:
        shutil.rmtree(self.kind / "clusters" / physical.name)

    async def there(self) -> Sequence[Physical]:
        records = Records(str(self.directory / "records")).names()
        return [Physical(name) for name in sorted({*self._there(), *records})]

    async def wreck(self, physical: Physical) -> None:
        """Make the creation look interrupted, as after a power failure."""
        (self.kind / "clusters" / physical.name / "state").write_text("booting\n")
        records = Records(str(self.directory / "records"))
        found = records.read(physical.name)
        assert found is not None
        records.write(physical.name, ClusterRecord(found.owner, CREATING, found.began))
        os.unlink(records.path(physical.name, "code"))

    async def hold(self) -> None:
        self.mode("hold")

    async def release(self) -> None:
        self.mode()

    async def break_down(self) -> None:
        words = (self.kind / "mode").read_text().split() if (self.kind / "mode").exists() else []
        self.mode("down", *words)

    async def come_back(self) -> None:
        self.mode()

    async def stall(self) -> None:
        self.mode("stall")

    async def talk_nonsense(self) -> None:
        self.mode("nonsense")

    def calls(self) -> int:
        return len((self.kind / "calls").read_text().splitlines())

    def left(self) -> Sequence[str]:
        return self.steps.open

    async def die_after(self, steps: int) -> None:
        self.steps.lived = steps

    def died(self) -> bool:
        return self.steps.held_back

    async def live(self) -> None:
        self.steps.lived, self.steps.held_back = None, False

    async def works(self, access: Access, viewpoint: str) -> None:
        assert (b"localhost" in access.kubeconfig) == (viewpoint == IN_CLUSTER)
        await super().works(access, viewpoint)

    async def turn(self) -> None:
        await pause(0.02)  # wait: callers look again after it

"""
The adaptor of kcp over kcp itself, where its program is found; and over a real kube-apiserver what
it makes within a workspace: accounts, their rights, and their tokens.
"""

from __future__ import annotations

import atexit
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld, pause, who_am_i
from tests.interop.programs import Programs, free_port
from tests.interop.space_clusters import Wire, shared_cluster
from tests.spacemanager.providers.kcp.world import CANNOT, KcpWorld
from twisted_exec.api.kinds import NAMESPACES, SERVICEACCOUNTS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.loader import load, load_inline
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.credentials import (
    NAMESPACE,
    account_name,
    ensure_account,
    of_config,
    request_token,
)
from twisted_exec.spacemanager.providers.kcp.workspaces import workspaces

reactor: Any = _reactor
PLACES = ("root:one", "root:two")
DEFAULT = "root:lab"


def version() -> str:
    """Of kcp, in a word."""
    program = needs.kcp_program()
    if not program:
        return ""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    # The version of Kubernetes comes first: v1.34.2+kcp-v0.30.0.
    found = re.search(r"kcp-(v[0-9.]+)", told.stdout + told.stderr)
    return found[1] if found else ""


class Kcp:
    """kcp, with its own etcd, in a directory of its own; one for all of a run."""

    shared: Kcp | None = None

    def __init__(self) -> None:
        self._programs = Programs("kcp-")
        self.port, *self._stores = (free_port() for _ in range(3))
        atexit.register(self.stop)

    @classmethod
    def running(cls) -> Kcp:
        """:return: it, once it is ready."""
        if cls.shared is None:
            made = cls()
            try:
                made.start()
            except BaseException:
                made.stop()  # the next test must not use one that is not ready
                raise
            cls.shared = made
        return cls.shared

    def start(self) -> None:
        """Flags are those of kcp's own tests."""
        program = needs.kcp_program()
        assert program is not None
        client, peer = self._stores
        self._programs.run(
            "kcp",
            program,
            "start",
            f"--root-directory={self._programs.path('root')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--embedded-etcd-client-port={client}",
            f"--embedded-etcd-peer-port={peer}",
            "--embedded-etcd-wal-size-bytes=5000",
            f"--kubeconfig-path={self._file}",
            env={"UNSAFE_E2E_HACK_DISABLE_ETCD_FSYNC": "true"},
        )
        self._programs.until("kcp is ready", self._is_ready)

    def stop(self) -> None:
        """End it, and delete its directory."""
        self._programs.stop()

    def restart(self) -> None:
        """kcp-admin has another token then; the file keeps that of another user, so it has to stay."""
        self._programs.end("kcp")
        self.start()

    def kubeconfig(self) -> bytes:
        """Of kcp-admin, context root."""
        return Path(self._file).read_bytes()

    @property
    def _file(self) -> str:
        return self._programs.path("admin.kubeconfig")

    def _is_ready(self) -> bool:
        try:
            config = load_inline(self.kubeconfig(), "kcp", "base")
        except OSError:
            return False
        command = ["curl", "-sfk", "-H", f"Authorization: Bearer {config.token}"]
        asking = [*command, f"{config.server}/readyz"]
        return subprocess.run(asking, capture_output=True, check=False).returncode == 0


class RealKcpWorld(KcpWorld):
    """kcp itself."""

    title = "kcp"
    parents = PLACES
    seconds = 60.0
    many = 10
    cannot = {
        **CANNOT,
        "not_ready": "On one host, kcp's workspaces are ready at once, so kcp cannot be stopped in between.",
        "down_while_made": "On one host, kcp's workspaces are ready at once, so kcp cannot be stopped in between.",
        "access_late": "The creation of its accounts cannot be delayed.",
        "forbidden": "The test uses kcp's administrator, who always has permission.",
    }

    def prepare(self) -> None:
        self.kcp = Kcp.running()

    async def start(self) -> None:
        self.wire = Wire(self.kcp.port)
        await self.wire.pass_on()
        self.config = load_inline(self.kcp.kubeconfig(), "kcp", "base")
        self.admin = KubeClient(self.config, reactor)
        places = [path.removeprefix("root:") for path in (DEFAULT, *PLACES)]
        await gatherResults([Deferred.fromCoroutine(self._made("root", name)) for name in places])
        # A deletion takes ten seconds, so all begin at once; one test's last may be under way.
        await gatherResults(
            [Deferred.fromCoroutine(self.vanish(each)) for each in await self.there()]
        )

    async def stop(self) -> None:
        if hasattr(self, "wire"):
            await self.wire.cut()
        if hasattr(self, "admin"):
            await self.admin.close()

    async def version(self) -> str:
        return version()

    def secret(self) -> Mapping[str, bytes]:
        found = yaml.safe_load(self.kcp.kubeconfig())
        for cluster in found["clusters"]:
            told = cluster["cluster"]
            told["server"] = f"https://127.0.0.1:{self.wire.port}/clusters/{DEFAULT}"
        for user in found["users"] if self.revoked else ():
            user["user"]["token"] = "of-a-start-before"
        return {"kubeconfig": yaml.safe_dump(found).encode()}

    revoked = False

    async def _made(self, parent: str, name: str) -> None:
        kind = {"type": {"name": "universal", "path": "root"}}
        wanted = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "spec": kind}
        try:
            await self.admin.create(workspaces(parent), {**wanted, "metadata": {"name": name}})
        except APIError as error:
            if error.code != 409:
                raise

        async def ready() -> bool:
            found = await self.admin.get(workspaces(parent), name)
            return (found.get("status") or {}).get("phase") == "Ready"

        await self.settled(f"{parent}:{name} is ready", ready)

    async def make_foreign(self, physical: Physical) -> None:
        await self._made(physical.parent or DEFAULT, physical.name)

    async def vanish(self, physical: Physical) -> None:
        parent = physical.parent or DEFAULT
        try:
            await self.admin.delete(workspaces(parent), physical.name)
        except NotFound:
            return

        async def gone() -> bool:
            return physical not in await self.there()

        await self.settled(f"{physical} is gone", gone)

    async def there(self) -> Sequence[Physical]:
        found = []
        for parent in (DEFAULT, *PLACES):
            listed = await self.admin.list(workspaces(parent))
            shown = "" if parent == DEFAULT else parent
            found += [Physical(each["metadata"]["name"], shown) for each in listed["items"]]
        return sorted(found)

    async def break_down(self) -> None:
        await self.wire.cut()

    async def come_back(self) -> None:
        await self.wire.pass_on()

    async def stall(self) -> None:
        await self.wire.answer(b"")

    async def talk_nonsense(self) -> None:
        await self.wire.answer(b"HTTP/1.1 200 OK\r\n\r\nno\r\n")

    async def revoke(self) -> None:
        # Adaptors that there are have the token of before.
        await deferToThread(self.kcp.restart)
        self.revoked = True

    async def renew(self) -> None:
        self.revoked = False
        self.config = load_inline(self.kcp.kubeconfig(), "kcp", "base")
        await self.admin.close()
        self.admin = KubeClient(self.config, reactor)

    async def turn(self) -> None:
        await pause(0.1)


class RealKcpTests(SpaceProviderContract, TestCase):
    """
    :class:`KcpProvider` and kcp; its token is another after a restart, and nested parents are among
    its places.
    """

    timeout = 300
    skip = needs.kcp()
    version = version()

    def make_world(self) -> SpaceWorld:
        return RealKcpWorld()


class AccountTests(TestCase):
    """The objects that are made within a workspace, made within a real cluster."""

    timeout = 300
    skip = needs.aggregated()

    async def setUp(self) -> None:
        cluster = await deferToThread(shared_cluster)
        self.config = load(cluster.kubeconfig)
        self.client = KubeClient(self.config, reactor)
        self.addCleanup(self.client.close)
        self.addCleanup(self.forgotten)

    async def forgotten(self) -> None:
        await self.client.delete(NAMESPACES.resource, NAMESPACE)

    async def test_account(self) -> None:
        """A new account's token has all rights, and is refused once the account is deleted."""
        name = account_name("lab")
        for _ in range(2):
            await ensure_account(self.client, name, _here)
            token = await request_token(self.client, name, _here, reactor.seconds)
        self.assertLess(abs(token.expires - token.issued - 86400), 60)
        config = ClientConfig(
            self.config.server, ca=Material(data=self.config.ca.read()), token=token.secret
        )
        access = of_config(config, "lab")
        told = await who_am_i(access.kubeconfig)
        self.assertEqual(told, f"system:serviceaccount:{NAMESPACE}:{name}")
        account = KubeClient(load_inline(access.kubeconfig, "account"), reactor)
        self.addCleanup(account.close)
        await account.list(NAMESPACES.resource)
        await self.client.delete(SERVICEACCOUNTS.resource, name, NAMESPACE)
        await self.until_refused(access.kubeconfig)

    async def until_refused(self, kubeconfig: bytes) -> None:
        """kube-apiserver remembers for ten seconds whom it let in."""
        for _ in range(60):
            try:
                await who_am_i(kubeconfig)
            except APIError as error:
                self.assertEqual(error.code, 401)
                return
            await pause(0.5)
        self.fail("the account is deleted, and its token still counts after 30 s")


def _here(resource: Resource) -> Resource:
    return resource

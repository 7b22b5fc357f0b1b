"""
Tests for :mod:`twisted_exec.spacemanager.providers.kcp.provider`, beyond the provider contract.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from tests.contracts.space_world import parts_of, pause, secrets_of, who_am_i
from tests.spacemanager.providers.kcp.played import NO_TYPES
from tests.spacemanager.providers.kcp.world import PlayedWorld, kubeconfig
from twisted_exec.api.kinds import ALL, CLUSTERROLEBINDINGS, SERVICEACCOUNTS
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER, SPACES
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
)
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import (
    BUILDING,
    USABLE,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.credentials import NAMESPACE, TOKEN_SECONDS, account_name
from twisted_exec.spacemanager.providers.kcp.provider import KcpProvider, _token_key, make
from twisted_exec.testing.cluster import MemoryCluster

reactor: Any = _reactor
OWNER = "space-1"
RED = Physical("red")
ACCOUNT = account_name("lab")


class KcpTestCase(TestCase):
    """A fake kcp and an adaptor for it."""

    async def setUp(self) -> None:
        self.world = PlayedWorld()
        self.kcp = self.world.kcp
        await self.world.start()
        self.addCleanup(self.world.stop)
        self.provider = self.made()

    def made(self) -> Any:
        provider = self.world.make()
        self.addCleanup(provider.close)
        return provider

    async def usable(self, physical: Physical = RED) -> SpaceInfo:
        await self.provider.create(physical, SpaceRequest(OWNER))
        return await self.until_usable(physical)

    async def until_usable(self, physical: Physical = RED) -> SpaceInfo:
        for _ in range(20):
            info: SpaceInfo = await self.provider.get(physical)
            if info.state == USABLE:
                return info
        self.fail(f"{physical} is {info}")

    async def refused(self, asking: Any, kind: type[APIError]) -> str:
        with self.assertRaises(APIError) as caught:
            await asking
        self.assertEqual((caught.exception.code, caught.exception.reason), (kind.code, kind.reason))
        self.assertNotIn(self.kcp.admin or "-", caught.exception.message)
        return caught.exception.message


class CredentialTests(KcpTestCase):
    """The account that a Space's kubeconfig uses."""

    async def test_account(self) -> None:
        """SF 2: kubeconfigs use a ServiceAccount of the workspace, not kcp's administrator."""
        info = await self.usable()
        green = await self.usable(Physical("green"))
        for access in info.access.values():
            self.assertNotIn(self.kcp.admin.encode(), access.kubeconfig)
            self.assertNotIn(b"never-used", access.kubeconfig)
            name = await who_am_i(access.kubeconfig)
            self.assertEqual(name, f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
        elsewhere = info.access[EXTERNAL].kubeconfig.replace(b":red", b":green")
        with self.assertRaises(Forbidden):
            try:
                await who_am_i(elsewhere)
            except APIError as error:
                raise Forbidden(error.message) if error.code == 403 else error from None
        self.assertNotEqual(green.uid, info.uid)

    async def test_servers(self) -> None:
        """Both viewpoints have the path of the workspace, each with its own host."""
        info = await self.usable()
        servers = {
            viewpoint: load_inline(access.kubeconfig, viewpoint).server
            for viewpoint, access in info.access.items()
        }
        path = "/clusters/root:lab:red"
        expected = {EXTERNAL: self.kcp.url + path, IN_CLUSTER: self.kcp.inside + path}
        self.assertEqual(servers, expected)

    async def test_end_is_told(self) -> None:
        """Access has the expiry of its token, which is reused until it is due."""
        before = reactor.seconds()
        info = await self.usable()
        expires = info.access[EXTERNAL].expires
        assert expires is not None
        requested = expires - TOKEN_SECONDS
        self.assertTrue(before - 60 < requested < reactor.seconds() + 60, requested)
        self.assertEqual((await self.provider.get(RED)).access, info.access)

    async def test_renewed(self) -> None:
        """SF 15: a token is renewed long before it expires; lists change the version."""
        info = await self.usable()
        self.world.later = TOKEN_SECONDS * 0.6
        (listed,) = await self.provider.list_spaces()
        self.assertNotEqual(listed.version, info.version)
        again = await self.provider.get(RED)
        self.assertNotEqual(again.access, info.access)

    async def test_hint_when_due(self) -> None:
        """Watchers get a hint when a token is due for renewal."""
        self.world.clock = clock = Clock()
        self.provider = self.made()
        info = await self.usable()
        hints: list[Physical | None] = []
        self.addCleanup(self.provider.watch(hints.append))
        expires = info.access[EXTERNAL].expires
        assert expires is not None
        clock.advance(60)
        self.assertNotIn(RED, hints)
        self.world.later = expires - 10 - reactor.seconds()
        clock.advance(60)
        self.assertIn(RED, hints)

    async def test_taken_back(self) -> None:
        """Deleting the ServiceAccount revokes its tokens; the next read creates both again."""
        info = await self.usable()
        cluster = self.kcp.at("root:lab:red")
        assert cluster is not None
        cluster.has.remove((SERVICEACCOUNTS.resource, NAMESPACE, ACCOUNT))
        with self.assertRaises(APIError):
            await who_am_i(info.access[EXTERNAL].kubeconfig)
        again = await self.provider.get(RED)
        await who_am_i(again.access[EXTERNAL].kubeconfig)
        self.assertNotEqual(again.version, info.version)

    async def test_reviews_that_say_nothing(self) -> None:
        """Reviews that reject even a new token are no longer used, and the token is kept."""
        await self.usable()
        self.kcp.accounts = _Forgetful(self.kcp.accounts)
        one = await self.provider.get(RED)
        self.assertEqual((await self.provider.get(RED)).access, one.access)

    async def test_no_account(self) -> None:
        """Without an account, the workspace is usable without access and gives the reason."""
        self.kcp.put("root:lab", "red")
        cluster = self.kcp.at("root:lab:red")
        assert cluster is not None
        binding = {"roleRef": {"name": "view"}, "subjects": [], "metadata": {"name": ACCOUNT}}
        cluster.has.put((CLUSTERROLEBINDINGS.resource, "", ACCOUNT), binding)
        info = await self.provider.get(RED)
        self.assertEqual(
            (info.state, info.reason, dict(info.access)), (USABLE, "NoCredentials", {})
        )
        self.assertIn(ACCOUNT, info.message)

    async def test_stale(self) -> None:
        """A restart of kcp invalidates kcp-admin's token, but not tokens of accounts."""
        info = await self.usable()
        self.kcp.restart()
        message = await self.refused(self.provider.list_spaces(), Unauthorized)
        self.assertIn('put a new kubeconfig into secret default/kcp, key "kubeconfig"', message)
        self.assertIn("a new token after each start of kcp", message)
        await self.refused(self.provider.get(RED), Unauthorized)
        await self.refused(self.provider.create(RED, SpaceRequest(OWNER)), Unauthorized)
        await who_am_i(info.access[EXTERNAL].kubeconfig)
        self.provider = self.made()
        await self.until_usable()

    async def test_rotate_early(self) -> None:
        """Rotating a workspace that is still building is refused."""
        self.kcp.held = True
        await self.provider.create(RED, SpaceRequest(OWNER))
        self.assertIn(BUILDING, await self.refused(self.provider.rotate(RED), Conflict))


class _Forgetful(dict[str, Any]):
    """A mapping that finds no token."""

    def get(self, *_key: Any) -> Any:
        return None


class PlaceTests(KcpTestCase):
    """Workspaces in workspaces."""

    async def test_no_cluster(self) -> None:
        """An invalid ``spec.cluster`` is ignored in favour of the workspace's path."""
        for told in ("*", "system:admin", "root/../x", "x?y", "", "X", ["a"]):
            self.assertEqual(_token_key({"spec": {"cluster": told}}, "root:a").cluster, "root:a")
        self.assertEqual(
            _token_key({"spec": {"cluster": "2hv3bzz1ibqj4fwk"}}, "root:a").path, "root:a"
        )

    async def test_same_name(self) -> None:
        """SF 9: workspaces of the same name under different parents are kept apart."""
        hints: list[Physical | None] = []
        one, two = Physical("red", "root:one"), Physical("red", "root:two")
        infos = [await self.usable(one), await self.usable(two)]
        self.assertEqual(await self.provider.list_names(), [one, two])
        self.assertNotEqual(infos[0].uid, infos[1].uid)
        self.assertNotEqual(
            secrets_of(infos[0].access[EXTERNAL].kubeconfig),
            secrets_of(infos[1].access[EXTERNAL].kubeconfig),
        )
        self.addCleanup(self.provider.watch(hints.append))
        await self.until_quiet(hints)
        self.kcp.set("root:two", "red", "Unavailable")
        await self.until_told(hints, two)
        self.assertEqual(hints, [two])

    async def until_told(self, hints: list[Physical | None], physical: Physical) -> None:
        while physical not in hints:
            await pause(0.01)

    async def until_quiet(self, hints: list[Physical | None]) -> None:
        """Wait until all watches have started, each with one hint None."""
        while hints.count(None) < 3:
            await pause(0.01)
        hints.clear()

    async def test_nested(self) -> None:
        """When a workspace disappears, the workspaces inside it are gone too."""
        await self.usable()
        inner = Physical("inner", "root:lab:red")
        await self.usable(inner)
        self.assertEqual(await self.provider.list_names(), [inner, RED])
        self.kcp.drop("root:lab", "red")
        self.assertEqual(await self.provider.list_names(), [])
        await self.refused(self.provider.get(inner), NotFound)
        await self.provider.delete(inner, OWNER)
        message = await self.refused(self.provider.create(inner, SpaceRequest(OWNER)), NotFound)
        self.assertIn('workspace "root:lab:red" does not exist', message)

    async def test_unknown_path(self) -> None:
        """kcp's 403 for a missing path is reported as 404, at any depth."""
        for parent in ("root:nowhere", "root:no:where:at:all"):
            lost = Physical("red", parent)
            await self.refused(self.provider.get(lost), NotFound)
            await self.provider.delete(lost, OWNER)
            self.assertIn(
                parent,
                await self.refused(self.provider.create(lost, SpaceRequest(OWNER)), NotFound),
            )
        self.assertEqual(await self.provider.list_names(), [])

    async def test_default_by_its_path(self) -> None:
        """The path of the default parent is refused with the advice to omit it."""
        spelled = Physical("red", "root:lab")
        for asking in (
            self.provider.get(spelled),
            self.provider.create(spelled, SpaceRequest(OWNER)),
            self.provider.delete(spelled, OWNER),
        ):
            self.assertIn("omit kubestellar.io/space-path", await self.refused(asking, Invalid))

    async def test_found_before(self) -> None:
        """
        The first list of a new adaptor includes the parents of Spaces discovered earlier, so that
        they are not removed.
        """
        self.kcp.put("root:one", "red")
        hub = MemoryCluster((*ALL,)).client()
        for name, parent, found in (("a", "root:one", True), ("b", "root:two", False)):
            known = {"name": "red", "parent": parent, "found": found}
            namespace = "spaceprovider-lab"
            made = await hub.create(SPACES, {"metadata": {"name": name}, "spec": {}}, namespace)
            await hub.update(
                SPACES,
                {**made, "status": {"physicalSpace": known}},
                namespace,
                subresource="status",
            )
        around = ProviderContext(hub, reactor, "/nonexistent", reactor.seconds)
        provider = make(ProviderSpec("lab", "kcp", self.world.secret(), "default/kcp"), around)
        self.addCleanup(provider.close)
        before = len(self.kcp.asked)
        self.assertEqual(await provider.list_names(), [Physical("red", "root:one")])
        self.assertEqual(len(self.kcp.asked) - before, 2)

    async def test_configured(self) -> None:
        """
        Workspaces under the ``parents`` of the Secret are discovered, also under a parent that is
        created later.
        """
        self.kcp.put("root:one", "red")
        secret = {**self.world.secret(), "parents": b"root:one root:later"}
        self.world.secret = lambda: secret  # type: ignore[method-assign]
        provider = self.made()
        self.assertEqual(await provider.list_names(), [Physical("red", "root:one")])
        self.kcp.put("root", "later")
        self.kcp.put("root:later", "green")
        expected = [Physical("green", "root:later"), Physical("red", "root:one")]
        self.assertEqual(await provider.list_names(), expected)

    async def test_root(self) -> None:
        """A kubeconfig for root creates spaces under root."""
        secret = {"kubeconfig": kubeconfig(f"{self.kcp.url}/clusters/root", self.kcp.admin)}
        self.world.secret = lambda: secret  # type: ignore[method-assign]
        self.provider = self.made()
        info = await self.usable()
        self.assertEqual(self.provider.default_parent, "root")
        self.assertEqual(list(info.access), [EXTERNAL])
        parts = parts_of(info.access[EXTERNAL].kubeconfig)
        self.assertEqual(
            parts["clusters"][0]["cluster"]["server"], f"{self.kcp.url}/clusters/root:red"
        )


class CreateTests(KcpTestCase):
    """Creating workspaces."""

    async def test_type(self) -> None:
        """An unknown workspace type fails with 400, although kcp answers 403."""
        wanted = SpaceRequest(OWNER, {"type": "no-such"})
        for self.kcp.no_type in NO_TYPES:
            message = await self.refused(self.provider.create(RED, wanted), BadRequest)
            self.assertIn("spec.parameters", message)
        await self.provider.create(RED, SpaceRequest(OWNER, {"type": "organization"}))
        cluster = self.kcp.at("root:lab")
        assert cluster is not None
        found = next(o for key, o in cluster.has.objects.items() if key[2] == "red")
        self.assertEqual(found["spec"]["type"], {"name": "organization", "path": "root"})

    async def test_being_deleted(self) -> None:
        """Creating a workspace fails while another of its name is being deleted."""
        await self.usable()
        self.kcp.held = True
        await self.provider.delete(RED, OWNER)
        message = await self.refused(self.provider.create(RED, SpaceRequest(OWNER)), Conflict)
        self.assertIn("is being deleted", message)
        await self.refused(self.provider.create(RED, SpaceRequest("space-2")), AlreadyExists)
        self.kcp.held = False
        self.kcp.go_on()
        self.kcp.go_on()
        await self.usable()

    async def test_unavailable(self) -> None:
        """An Unavailable workspace counts as building, and is not replaced."""
        info = await self.usable()
        self.kcp.set("root:lab", "red", "Unavailable")
        found = await self.provider.get(RED)
        self.assertEqual((found.state, found.reason), (BUILDING, "Unavailable"))
        await self.provider.create(RED, SpaceRequest(OWNER))
        self.kcp.set("root:lab", "red", "Ready")
        self.assertEqual((await self.until_usable()).uid, info.uid)


class MakeTests(TestCase):
    """Tests for :func:`make`."""

    async def test_make(self) -> None:
        """The adaptor uses its Secret and sends no request; without a Secret it is refused."""
        around = ProviderContext(MemoryCluster().client(), reactor, "/nonexistent", reactor.seconds)
        secret = {"kubeconfig": kubeconfig("https://127.0.0.1:1/clusters/root", "t")}
        provider = make(ProviderSpec("lab", "kcp", secret, "default/kcp"), around)
        self.assertIsInstance(provider, KcpProvider)
        self.assertEqual(provider.default_parent, "root")
        await provider.close()
        with self.assertRaises(Invalid):
            make(ProviderSpec("lab", "kcp", {}, "default/kcp"), around)

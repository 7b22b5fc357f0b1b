"""
Tests for :mod:`twisted_exec.spacemanager.registry`: SpaceProviderDescs and what
becomes of them.
"""

from __future__ import annotations

import base64
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.spacemanager.support import KUBECONFIG, Hub, one
from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.spaces import (
    CREDENTIALS_VALID,
    KIND,
    PROVIDER_REACHABLE,
    PROVIDERS,
    SPACES,
    SYNCED,
    namespace_of,
)
from twisted_exec.api.status import BadGateway, Unauthorized
from twisted_exec.spacemanager import registry
from twisted_exec.spacemanager.interfaces import IProviders, IProviderView, Physical
from twisted_exec.spacemanager.registry import ProviderRegistry

REF = {"secretRef": {"namespace": "default", "name": "creds"}}


class ProvidersCase(SynchronousTestCase):
    """A manager's providers over a hub in memory."""

    def setUp(self) -> None:
        self.hub = Hub()
        self.told: list[tuple[str, Physical | None]] = []
        self.providers = self.hub.providers()
        self.running = False

    def start(self) -> ProviderRegistry:
        self.providers.follow(lambda name, physical: self.told.append((name, physical)))
        self.providers.startService()
        self.addCleanup(self.stop, self.providers)
        self.hub.pass_time(1)
        return self.providers

    def stop(self, providers: ProviderRegistry) -> None:
        if providers.running:
            self.successResultOf(providers.stopService())
        self.assertEqual(self.hub.clock.getDelayedCalls(), [], "nothing is left")

    def view(self, name: str) -> IProviderView:
        found = self.providers.get(name)
        assert found is not None
        return found


class ReadyTests(ProvidersCase):
    """When a provider is Ready."""

    def test_ready(self) -> None:
        """It is Ready when it told its physical spaces; the namespace is there, marked as ours."""
        self.hub.world("here").put(one("a"))
        self.hub.desc("here")
        self.start()
        status = self.hub.got("here")["status"]
        self.assertEqual((status["Phase"], status["spaces"]), ("Ready", 0))
        self.assertEqual(status["observedGeneration"], 1)
        for type in (PROVIDER_REACHABLE, CREDENTIALS_VALID, SYNCED):
            self.assertEqual(self.hub.condition("here", type)[0], "True")
        labels = (self.hub.namespace("here") or {})["metadata"]["labels"]
        self.assertEqual(labels["app.kubernetes.io/managed-by"], "exec-spacemanager")
        self.assertEqual(list(self.view("here").spaces()), [one("a")])
        self.assertTrue(verifyObject(IProviders, self.providers))
        self.assertTrue(verifyObject(IProviderView, self.view("here")))

    def test_built_is_not_ready(self) -> None:
        """SF, Ready meant "adaptor built": one that cannot be reached is not Ready, and says why."""
        self.hub.world("here").problem = BadGateway("cannot reach it; start it")
        self.hub.desc("here")
        self.start()
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Initializing")
        self.assertEqual(self.hub.condition("here", PROVIDER_REACHABLE), ("False", "Unreachable"))
        self.assertEqual(self.hub.condition("here", CREDENTIALS_VALID)[0], "Unknown")
        self.assertEqual(self.hub.message("here", PROVIDER_REACHABLE), "cannot reach it; start it")
        self.assertIn(("Warning", "Unreachable", "here"), self.hub.events())

    def test_one_fails(self) -> None:
        """A provider that cannot be processed has an Event, and holds up no other; it is retried."""
        status_of = registry.status_of

        def failing(desc: Any, *more: Any) -> Any:
            if desc["metadata"]["name"] == "broken":
                raise ZeroDivisionError
            return status_of(desc, *more)

        failed = self.patch(registry, "status_of", failing)
        for name in ("broken", "here"):
            self.hub.desc(name)
        self.start()
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")
        self.assertIn(("Warning", "ReconcileFailed", "broken"), self.hub.events())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        failed.restore()
        self.hub.pass_time(90)
        self.assertEqual(self.hub.got("broken")["status"]["Phase"], "Ready")

    def test_down_and_back(self) -> None:
        """One that goes away keeps what it told, and is found again by itself."""
        world = self.hub.world("here")
        world.put(one("a"))
        self.hub.desc("here")
        self.start()
        world.problem = BadGateway("away")
        self.hub.pass_time(40)
        self.assertEqual(self.hub.condition("here", PROVIDER_REACHABLE)[0], "False")
        self.assertEqual(list(self.view("here").spaces()), [one("a")])
        self.assertFalse(self.view("here").gone(one("a")))
        world.problem = None
        self.hub.pass_time(40)
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")
        self.assertIn(("Normal", "Listed", "here"), self.hub.events())

    def test_refused(self) -> None:
        """One that does not let us in was reached; the credentials are what is wrong."""
        self.hub.world("here").problem = Unauthorized("renew the Secret")
        self.hub.desc("here")
        self.start()
        self.assertEqual(self.hub.condition("here", PROVIDER_REACHABLE)[0], "True")
        self.assertEqual(self.hub.condition("here", CREDENTIALS_VALID), ("False", "Unauthorized"))

    def test_one_dead_delays_nobody(self) -> None:
        """One that never answers leaves others as quick as they are, and is told of in a minute."""
        self.hub.world("dead").stalled = True
        self.hub.desc("dead")
        self.hub.desc("well")
        self.start()
        self.assertEqual(self.hub.got("well")["status"]["Phase"], "Ready")
        self.assertEqual(self.hub.condition("dead", PROVIDER_REACHABLE)[0], "Unknown")
        self.hub.pass_time(65)
        self.assertEqual(self.hub.condition("dead", PROVIDER_REACHABLE), ("False", "TimedOut"))

    def test_counted(self) -> None:
        """How many Spaces there are is told, a moment later."""
        self.hub.desc("here")
        self.start()
        for name in "abc":
            self.hub.space(name, "here")
        self.hub.pass_time(2)
        self.assertEqual(self.hub.got("here")["status"]["spaces"], 3)

    def test_quiet(self) -> None:
        """What stays as it is costs no write."""
        self.hub.desc("here")
        self.start()
        self.hub.pass_time(5)
        self.hub.cluster.requests.clear()
        self.hub.pass_time(120, 1)
        self.assertEqual(self.hub.cluster.requests, [])


class SecretTests(ProvidersCase):
    """The Secret of a provider."""

    def test_missing_then_made(self) -> None:
        """One that is not there is told of by its name, and taken when it comes."""
        self.hub.desc("here", **REF)
        self.start()
        self.assertEqual(self.hub.condition("here", SYNCED), ("False", "SecretNotFound"))
        self.assertIn(
            "secret default/creds does not exist; make it", self.hub.message("here", SYNCED)
        )
        self.assertEqual(self.hub.condition("here", CREDENTIALS_VALID)[0], "Unknown")
        self.assertIsNone(self.view("here").provider)
        self.hub.secret("creds", kubeconfig=KUBECONFIG)
        self.hub.pass_time(1)
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")
        ((spec, _),) = self.hub.made
        self.assertEqual(spec.secret, {"kubeconfig": KUBECONFIG})
        self.assertNotIn("secret-token", repr(spec))

    def test_rotated(self) -> None:
        """Another content is another adaptor; the old one is closed, and what it told stays meanwhile."""
        self.hub.world("here").put(one("a"))
        self.hub.secret("creds", kubeconfig=KUBECONFIG)
        self.hub.desc("here", **REF)
        self.start()
        self.hub.secret("creds", kubeconfig=KUBECONFIG.replace(b"secret", b"other"))
        self.hub.pass_time(1)
        (_, first), (spec, second) = self.hub.made
        self.assertEqual((first.closed, second.closed), (True, False))
        self.assertIn(b"other-token", (spec.secret or {})["kubeconfig"])
        self.assertEqual(list(self.view("here").spaces()), [one("a")])

    def test_encoded_twice(self) -> None:
        """As upstream wrote and read them: encoded once more."""
        self.hub.secret("creds", kubeconfig=base64.b64encode(KUBECONFIG), token=b"abcd")
        self.hub.desc("here", **REF)
        self.start()
        self.assertEqual(self.hub.made[0][0].secret, {"kubeconfig": KUBECONFIG, "token": b"abcd"})

    def test_unusable(self) -> None:
        """A kubeconfig that names a program or a file is refused, and nothing of it is told."""
        named = (b"exec: {command: /bin/evil}", b"client-key: /etc/shadow")
        for wrong in named:
            self.hub.secret("creds", kubeconfig=KUBECONFIG.replace(b"token: secret-token", wrong))
            self.hub.desc("here", **REF)
            self.providers = self.hub.providers()
            self.start()
            self.assertEqual(self.hub.condition("here", SYNCED), ("False", "SecretCannotBeUsed"))
            message = self.hub.message("here", SYNCED)
            self.assertIn('secret default/creds, key "kubeconfig"', message)
            self.assertIn("is not taken from here; use", message)
            self.assertNotIn("evil", message)
            self.stop(self.providers)

    def test_unusable_later(self) -> None:
        """One that becomes unusable leaves the adaptor that there is; one that goes takes it along."""
        self.hub.secret("creds", kubeconfig=KUBECONFIG)
        self.hub.desc("here", **REF)
        self.start()
        self.hub.secret("creds", kubeconfig=b"not: [a kubeconfig")
        self.hub.pass_time(1)
        self.assertEqual(self.hub.condition("here", SYNCED), ("False", "SecretCannotBeUsed"))
        self.assertEqual(self.hub.condition("here", CREDENTIALS_VALID)[0], "True")
        self.assertIsNotNone(self.view("here").provider)
        self.hub.drop(SECRETS.resource, "creds", "default")
        self.hub.pass_time(1)
        self.assertIsNone(self.view("here").provider)
        self.assertTrue(self.hub.made[0][1].closed)
        self.assertEqual(
            self.hub.condition("here", CREDENTIALS_VALID), ("Unknown", "SecretNotFound")
        )

    def test_half_a_reference(self) -> None:
        """A reference without a namespace says so."""
        self.hub.desc("here", secretRef={"name": "creds"})
        self.start()
        self.assertEqual(self.hub.condition("here", SYNCED), ("False", "SecretRefIncomplete"))


class DescTests(ProvidersCase):
    """What becomes of a SpaceProviderDesc."""

    def test_unknown_type(self) -> None:
        """A type that nobody here knows is told once, not tried for ever."""
        self.hub.desc("here", type=KIND)
        self.start()
        self.assertEqual(self.hub.condition("here", SYNCED), ("False", "UnknownProviderType"))
        self.assertIn("(enabled: local)", self.hub.message("here", SYNCED))
        self.hub.pass_time(10)
        self.assertEqual(self.hub.events(), [("Warning", "UnknownProviderType", "here")])

    def test_cannot_be_made(self) -> None:
        """A bug in an adaptor is no end of the manager."""
        self.hub.makers[KIND] = lambda spec, around: {}[spec.name]
        self.hub.desc("here", type=KIND)
        self.hub.desc("there")
        self.start()
        self.assertEqual(self.hub.condition("here", SYNCED), ("False", "AdaptorFailed"))
        self.assertEqual(self.hub.got("there")["status"]["Phase"], "Ready")
        self.hub.pass_time(120)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1, "told once")

    def test_made_anew(self) -> None:
        """SF 6: one that is deleted and made again has an adaptor of its own, and is listed anew."""
        self.hub.desc("here")
        self.hub.space("a", "here")
        self.start()
        self.hub.drop(PROVIDERS, "here")
        self.hub.pass_time(1)
        self.assertIsNone(self.providers.get("here"))
        self.assertTrue(self.hub.made[0][1].closed)
        self.hub.world("here").put(one("late"))
        self.hub.desc("here")
        self.hub.pass_time(1)
        self.assertEqual(len(self.hub.made), 2)
        self.assertEqual(list(self.view("here").spaces()), [one("late")])
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")

    def test_there_when_synced(self) -> None:
        """Whoever finds all to be read finds a view of each, if only one that knows nothing yet."""
        self.hub.desc("here")
        get = self.hub.client.list
        self.patch(
            self.hub.client,
            "list",
            lambda resource, *args, **more: (
                Deferred() if resource == NAMESPACES.resource else get(resource, *args, **more)
            ),
        )
        self.providers.startService()
        self.addCleanup(self.stop, self.providers)
        self.assertTrue(self.providers.synced)
        self.assertEqual(self.view("here").reachable.status, "Unknown")
        self.assertIsNone(self.view("here").provider)

    def test_exchanged_at_once(self) -> None:
        """The same where nobody noticed the moment between."""
        self.hub.desc("here")
        self.start()
        first = self.view("here")
        self.hub.cluster.problem = BadGateway("away")
        self.hub.cluster.end_watches()
        self.hub.cluster.problem = None
        self.hub.drop(PROVIDERS, "here")
        self.hub.desc("here")
        self.hub.pass_time(5)
        self.assertIsNot(self.view("here"), first)
        self.assertTrue(self.hub.made[0][1].closed)

    def test_prefix(self) -> None:
        """Another prefix counts at once, and followers are told."""
        self.hub.desc("here", SpacePrefixForDiscovery="ks-")
        self.start()
        view = self.view("here")
        self.assertEqual([view.passes(one("ks-1")), view.passes(one("x"))], [True, False])
        self.told.clear()
        self.hub.desc("here", SpacePrefixForDiscovery="x*")
        self.hub.pass_time(1)
        self.assertEqual([view.passes(one("ks-1")), view.passes(one("x"))], [False, True])
        self.assertIn(("here", None), self.told)

    def test_namespace_first(self) -> None:
        """When the provider's spaces are told their namespace is there: nobody has to try again."""
        self.hub.world("here").put(one("a"))
        self.hub.desc("here")
        there: list[bool] = []

        def told(name: str, physical: Physical | None) -> None:
            view = self.providers.get(name)
            if view is not None and view.spaces():
                there.append(self.hub.namespace(name) is not None)

        self.providers.follow(told)
        self.start()
        self.assertEqual(set(there), {True})

    def test_told(self) -> None:
        """Followers are told of what was hinted at, and of nothing else."""
        world = self.hub.world("here")
        world.put(one("a"))
        self.hub.desc("here")
        self.start()
        self.told.clear()
        world.put(one("b"))
        self.assertEqual(self.told, [("here", one("b"))])

    def test_hub_away(self) -> None:
        """A hub that does not answer for a while is written to later."""
        self.hub.desc("here")
        self.hub.cluster.problem = BadGateway("away")
        self.providers.startService()
        self.addCleanup(self.stop, self.providers)
        self.hub.pass_time(10)
        self.hub.cluster.problem = None
        self.hub.pass_time(20)
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")


class NamespaceTests(ProvidersCase):
    """The namespace of a provider's Spaces."""

    def gone(self, **rest: object) -> bool:
        """Delete the provider; :return: its namespace is gone then."""
        self.hub.drop(PROVIDERS, "here")
        self.hub.pass_time(3)
        return self.hub.namespace("here") is None

    def test_taken_away(self) -> None:
        """It goes with its provider."""
        self.hub.desc("here")
        self.start()
        self.hub.put(SECRETS.resource, "ours", namespace_of("here"), metadata={"labels": _OURS})
        self.assertTrue(self.gone())

    def test_gone_meanwhile(self) -> None:
        """Also when the provider went while no manager was there."""
        labels = {**_OURS, "space.twisted-exec.dev/provider": "here"}
        self.hub.put(NAMESPACES.resource, namespace_of("here"), metadata={"labels": labels})
        self.start()
        self.assertIsNone(self.hub.namespace("here"))

    def test_with_spaces(self) -> None:
        """Never while Spaces are left; when the last is gone it follows."""
        self.hub.desc("here")
        self.start()
        self.hub.space("a", "here")
        self.assertFalse(self.gone())
        self.hub.drop(SPACES, "a", namespace_of("here"))
        self.hub.pass_time(3)
        self.assertIsNone(self.hub.namespace("here"))

    def test_with_something_of_others(self) -> None:
        """Never while there is anything in it that somebody else put there."""
        self.hub.desc("here")
        self.start()
        self.hub.put(SECRETS.resource, "theirs", namespace_of("here"))
        self.assertFalse(self.gone())

    def test_not_ours(self) -> None:
        """One that was there before us is used, and stays."""
        self.hub.put(NAMESPACES.resource, namespace_of("here"))
        self.hub.desc("here")
        self.start()
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")
        self.assertFalse(self.gone())

    def test_deleted_by_somebody(self) -> None:
        """It is made again."""
        self.hub.desc("here")
        self.start()
        self.hub.drop(NAMESPACES.resource, namespace_of("here"))
        self.hub.pass_time(1)
        self.assertIsNotNone(self.hub.namespace("here"))


_OURS = {"app.kubernetes.io/managed-by": "exec-spacemanager"}

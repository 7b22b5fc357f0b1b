"""Tests for :mod:`twisted_exec.spaces.client` and its parts."""

from __future__ import annotations

import base64
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.spaces.support import (
    CA,
    IMPORTED,
    SECRET,
    SPACE,
    Hub,
    Listener,
    Servers,
    Slow,
    kubeconfig,
)
from twisted_exec.api import spaces
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Conflict,
    Forbidden,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.spaces.credentials import AHEAD_SECONDS, LOOK_SECONDS, PAUSE_SECONDS
from twisted_exec.spaces.interfaces import ISpaceClient, ISpaceConnection, SpaceName
from twisted_exec.spaces.secrets import SETTLE_SECONDS

NAMESPACE = spaces.namespace_of("default")


class ClientTestCase(SynchronousTestCase):
    """A cluster that has Spaces, and a client that follows them."""

    def setUp(self) -> None:
        self.hub, self.servers, self.clock = Hub(), Servers(), Clock()
        self.listener = Listener()

    def make(self, **more: Any) -> SpaceClient:
        hub = more.pop("hub", None) or self.hub.cluster.client()
        client = SpaceClient(hub, self.clock, make_client=self.servers.make, **more)
        client.follow(self.listener)
        client.startService()
        self.addCleanup(self.stop, client)
        return client

    def stop(self, client: SpaceClient) -> None:
        if client.running:
            self.successResultOf(client.stopService())

    def refused(self, client: SpaceClient, *name: str, kind: type[APIError]) -> str:
        with self.assertRaises(kind) as caught:
            client.get(*name)
        return caught.exception.message

    def secrets(self, client: IKubeClient) -> Deferred[Any]:
        return client.list(SECRET, "a")


class LookUpTests(ClientTestCase):
    """Looking up a Space by name."""

    def test_doors(self) -> None:
        """SpaceClient, its clients and its connections provide their interfaces."""
        self.hub.both()
        client = self.make()
        verifyObject(ISpaceClient, client)
        verifyObject(IService, client)
        verifyObject(IKubeClient, client.get("one"))
        verifyObject(ISpaceConnection, client.connection("one"))

    def test_by_name(self) -> None:
        """A Space is found by its name alone, without a request."""
        self.hub.both()
        client = self.make()
        requests = len(self.hub.cluster.requests)
        self.assertIs(client.get("one"), client.get("one", "default"))
        self.assertEqual(len(self.hub.cluster.requests), requests)
        self.successResultOf(self.secrets(client.get("one")))
        self.assertEqual(self.servers.shown, [("https://one.example", "t1")])
        connection = client.connection("one")
        self.assertEqual(connection.name, SpaceName("one", "default", NAMESPACE))
        self.assertEqual((connection.uid, connection.problem), ("uid-1", ""))

    def test_the_default_provider(self) -> None:
        """SF 14: of several Spaces of a name, the default provider's is returned."""
        for provider in ("kind", "default", "kcp"):
            self.hub.both(provider=provider)
        client = self.make()
        self.assertEqual(client.connection("one").name.provider, "default")
        self.assertEqual(client.connection("one", "kcp").name.provider, "kcp")

    def test_the_only_one(self) -> None:
        """A name that only another provider has returns that provider's Space."""
        self.hub.both(provider="kind")
        self.assertEqual(self.make().connection("one").name.provider, "kind")

    def test_ambiguous(self) -> None:
        """An ambiguous name is refused with the list of candidates."""
        for provider in ("kind", "kcp"):
            self.hub.both(provider=provider)
        self.hub.secret(own="mine", namespace="lab")
        self.hub.space(namespace="lab", spec=IMPORTED, secret="mine")
        client = self.make()
        self.assertEqual(
            self.refused(client, "one", kind=Conflict),
            'there are several spaces "one": imported in namespace "lab", of provider "kcp", '
            'of provider "kind"; name the provider',
        )
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(client.connection("one", "lab").name, SpaceName("one", "", "lab"))

    def test_none(self) -> None:
        """A missing Space is not found; the message lists other providers that have the name."""
        self.hub.both()
        client = self.make()
        self.assertEqual(self.refused(client, "two", kind=NotFound), 'there is no space "two"')
        self.assertEqual(
            self.refused(client, "one", "kcp", kind=NotFound),
            'there is no space "one" of the provider "kcp"; spaces of this name: of provider "default"',
        )

    def test_not_read_yet(self) -> None:
        """Until the first list, lookups fail with 503; when_synced fires after it."""
        self.hub.both()
        self.hub.cluster.problem = BadGateway("no route")
        client = self.make()
        told = self.refused(client, "one", kind=ServiceUnavailable)
        self.assertIn("no route", told)
        waiting = client.when_synced()
        self.assertNoResult(waiting)
        self.hub.cluster.problem = None
        self.clock.advance(1)
        self.successResultOf(waiting)
        self.successResultOf(client.when_synced())
        self.assertTrue(client.synced)
        client.get("one")

    def test_somewhere_else(self) -> None:
        """A Space in a user's namespace that claims a provider is ignored."""
        self.hub.secret(namespace="evil")
        self.hub.space(namespace="evil", spec={"SpaceProviderDescName": "default"})
        self.refused(self.make(), "one", kind=NotFound)
        self.assertEqual(self.listener.told, [])

    def test_not_ready(self) -> None:
        """A Space is engaged once Ready; before that, lookups fail with its condition."""
        self.hub.secret()
        condition = {
            "type": spaces.PHYSICAL_SPACE_READY,
            "status": "False",
            "message": "no node yet",
        }
        self.hub.space(phase=spaces.INITIALIZING, conditions=[condition])
        client = self.make()
        self.assertEqual(
            self.refused(client, "one", kind=ServiceUnavailable),
            'space "default/one" cannot be reached: it is Initializing: no node yet',
        )
        self.hub.space()
        client.get("one")
        self.assertEqual(self.listener.told, [("engaged", "default/one")])


class ViewpointTests(ClientTestCase):
    """The viewpoint of a client."""

    def test_each(self) -> None:
        """SF 14: each client has its own viewpoint, whatever other clients there are."""
        self.hub.secret(kubeconfig("https://inside.example"), viewpoint=spaces.IN_CLUSTER)
        self.hub.secret(kubeconfig("https://outside.example"))
        self.hub.space(viewpoints=spaces.VIEWPOINTS)
        inside, outside = self.make(viewpoint=spaces.IN_CLUSTER), self.make()
        self.assertEqual(inside.connection("one").config().server, "https://inside.example")
        self.assertEqual(outside.connection("one").config().server, "https://outside.example")

    def test_missing(self) -> None:
        """A missing viewpoint is reported with the existing one and the remedy."""
        self.hub.both(spec={"accessscopetype": spaces.EXTERNAL})
        client = self.make(viewpoint=spaces.IN_CLUSTER)
        self.assertEqual(
            self.refused(client, "one", kind=ServiceUnavailable),
            'space "default/one" cannot be reached: it has no in-cluster kubeconfig, only an external '
            "one, as its accessscopetype is External; use that viewpoint, or give it the other one",
        )

    def test_neither(self) -> None:
        """Without a kubeconfig, an imported Space asks for a Secret; others wait."""
        self.hub.space(secret=None)
        self.hub.space("two", namespace="lab", spec=IMPORTED, secret=None)
        client = self.make()
        self.assertIn("no kubeconfig yet", self.refused(client, "one", kind=ServiceUnavailable))
        told = self.refused(client, "two", kind=ServiceUnavailable)
        self.assertIn("names no Secret with a kubeconfig; set spec.externalSecretRef", told)

    def test_unknown(self) -> None:
        """An unknown viewpoint raises ValueError."""
        with self.assertRaises(ValueError):
            SpaceClient(self.hub.cluster.client(), self.clock, viewpoint="Inside")


class SecretTests(ClientTestCase):
    """Credentials from Secrets."""

    def test_imported(self) -> None:
        """SF 14: the client follows a user's Secret, base64-encoded once, by its name."""
        own = {"externalSecretRef": {"name": "mine"}}
        self.hub.space(namespace="lab", secret=None, spec={**IMPORTED, **own})
        self.hub.secret(own="mine", namespace="lab")
        self.hub.secret(own="other", namespace="lab")
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(client.connection("one").config().token, "t1")
        self.hub.secret(kubeconfig(token="t2"), own="mine", namespace="lab")
        self.assertEqual(client.connection("one").config().token, "t2")

    def test_imported_as_upstream_had_it(self) -> None:
        """A Secret named in ``status`` and base64-encoded twice, as upstream did it, is read."""
        self.hub.space(namespace="lab", secret="mine", spec=IMPORTED)
        self.hub.secret(base64.b64encode(kubeconfig()), own="mine", namespace="lab")
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(client.connection("one").config().token, "t1")

    def test_of_another_namespace(self) -> None:
        """A Space cannot use a Secret of another namespace, which its author may not read."""
        self.hub.both()
        stolen = {"externalSecretRef": {"name": "external-one", "namespace": NAMESPACE}}
        self.hub.space("thief", namespace="lab", secret=None, spec={**IMPORTED, **stolen})
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        self.assertIn(
            f"names secret {NAMESPACE}/external-one in another namespace; copy it to the Space's",
            self.refused(client, "thief", kind=ServiceUnavailable),
        )

    def test_later(self) -> None:
        """SF 14: a Secret created after its Space is used as soon as it exists."""
        self.hub.space()
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        told = self.refused(client, "one", kind=ServiceUnavailable)
        self.assertIn(f"secret {NAMESPACE}/external-one does not exist", told)
        self.hub.secret()
        client.get("one")
        self.clock.advance(60)
        self.hub.secret(kubeconfig(token="t2"))
        self.assertEqual(client.connection("one").config().token, "t2")

    def test_no_watch_of_its_own(self) -> None:
        """One watch covers all Secrets with the manager's label, even those created late."""
        client = self.make()
        for name in ("one", "two", "three"):
            self.hub.space(name)
            self.hub.secret(name=name)
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(len(client.all()), 3)
        self.assertEqual(self.hub.cluster.watches, 2)

    def test_upstreams(self) -> None:
        """Secrets of upstream's manager have no label: each gets a watch by its name."""
        self.hub.secret(base64.b64encode(kubeconfig()), own="external-one")
        self.hub.space()
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        client.get("one")
        self.assertEqual(self.hub.cluster.watches, 3)
        self.hub.remove(SPACE, "one")
        self.assertEqual(self.hub.cluster.watches, 2)

    def test_label_given_later(self) -> None:
        """A Secret that gains or loses the label is still followed."""
        self.hub.secret(own="external-one")
        self.hub.space()
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        self.hub.secret(kubeconfig(token="t2"))
        self.assertEqual(self.hub.cluster.watches, 2)
        self.assertEqual(client.connection("one").config().token, "t2")
        self.hub.secret(kubeconfig(token="t3"), own="external-one")
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(client.connection("one").config().token, "t3")
        self.assertEqual(self.hub.cluster.watches, 3)

    def test_broken(self) -> None:
        """The message about a bad Secret has its name and key, but not its content."""
        self.hub.secret(key="value")
        self.hub.space()
        client = self.make()
        told = self.refused(client, "one", kind=ServiceUnavailable)
        self.assertIn(
            f'secret {NAMESPACE}/external-one, key "kubeconfig": there is no such key; '
            "put the kubeconfig there (there is another)",
            told,
        )

    def test_broken_later(self) -> None:
        """An invalid update keeps the previous credentials in use and is logged once."""
        self.hub.both()
        client = self.make()
        with capturedLogs() as logs:
            for _ in range(2):
                self.hub.secret(b"{")
        self.assertEqual(client.connection("one").config().token, "t1")
        (told,) = map(formatEvent, logs)
        self.assertIn('space "default/one": keeping the previous credentials: secret ', told)
        self.hub.secret(kubeconfig(token="t2"))
        self.assertEqual(client.connection("one").config().token, "t2")
        self.hub.secret(b"{")
        self.hub.secret()
        self.assertEqual(client.connection("one").config().token, "t1")

    def test_taken_away(self) -> None:
        """Deleting the Secret removes the credentials, but the connection stays the same."""
        self.hub.both()
        client = self.make()
        connection = client.connection("one")
        self.hub.remove(SECRET, "external-one")
        self.clock.advance(SETTLE_SECONDS)
        told = self.refused(client, "one", kind=ServiceUnavailable)
        self.assertIn("does not exist", told)
        self.assertIn("does not exist", connection.problem)
        self.assertEqual(client.all(), [connection])
        self.hub.secret(kubeconfig(token="t2"))
        self.assertIs(client.connection("one"), connection)
        self.assertEqual(self.listener.told, [("engaged", "default/one")])

    def test_may_not_read(self) -> None:
        """An unreadable Secret is reported with the server's message."""
        self.hub.space(namespace="lab", spec=IMPORTED, secret="mine")
        hub = _Refusing(self.hub.cluster.client(), "secrets is forbidden")
        client = self.make(hub=hub)
        self.clock.advance(SETTLE_SECONDS)
        told = self.refused(client, "one", kind=ServiceUnavailable)
        self.assertIn("secret lab/mine cannot be read: secrets is forbidden", told)

    def test_namespaces(self) -> None:
        """With ``namespaces``, the client requests only those namespaces."""
        self.hub.both()
        self.hub.both(provider="kcp", name="two")
        client = self.make(namespaces=[spaces.namespace_of("kcp")])
        self.refused(client, "one", kind=NotFound)
        client.get("two")
        asked = {namespace for _, _, namespace, _ in self.hub.cluster.requests}
        self.assertEqual(asked, {"spaceprovider-kcp"})

    def test_by_name_only(self) -> None:
        """With ``secrets_by_name``, the client watches each Secret by its name."""
        self.hub.both()
        client = self.make(secrets_by_name=True)
        self.clock.advance(SETTLE_SECONDS)
        client.get("one")
        self.assertEqual(self.hub.cluster.watches, 2)
        self.hub.secret(kubeconfig(token="t2"))
        self.assertEqual(client.connection("one").config().token, "t2")


class RotationTests(ClientTestCase):
    """Credentials that change."""

    def test_same_client(self) -> None:
        """SF 14: a rotated Secret reaches the same client at once; its watches continue."""
        self.hub.both()
        client = self.make()
        connection, kube = client.connection("one"), client.get("one")
        seen: list[str] = []
        watching = kube.watch(SECRET, lambda kind, _: seen.append(kind), resource_version="1")
        self.hub.secret(kubeconfig(token="t2"))
        self.successResultOf(self.secrets(kube))
        self.assertEqual(self.servers.shown[-1], ("https://one.example", "t2"))
        self.assertIs(client.get("one"), kube)
        self.assertIs(client.connection("one"), connection)
        self.assertNoResult(watching)
        cluster = self.servers.clusters["https://one.example"]
        cluster.put((SECRET, "a", "s"), {"metadata": {"name": "s", "namespace": "a"}})
        self.assertEqual(seen, ["ADDED"])
        self.assertEqual(self.listener.told, [("engaged", "default/one")])
        watching.cancel()
        watching.addErrback(lambda _: None)

    def test_only_when_it_changes(self) -> None:
        """Rewriting a Secret with the same kubeconfig changes nothing."""
        self.hub.both()
        client = self.make()
        config = client.connection("one").config()
        self.hub.secret()
        self.hub.space(labels={"a": "b"})
        self.assertIs(client.connection("one").config(), config)
        self.assertEqual(client.connection("one").labels, {"a": "b"})

    def test_looked_at_again(self) -> None:
        """After a 401 the client reads the Secret and repeats the request."""
        self.hub.both()
        client = self.make()
        kube = client.get("one")
        self.servers.taken["https://one.example"] = "t2"
        self.hub.cluster.end_watches()  # which come back after a pause
        self.hub.secret(kubeconfig(token="t2"))
        self.assertEqual(client.connection("one").config().token, "t1")
        self.successResultOf(self.secrets(kube))
        self.assertEqual([token for _, token in self.servers.shown], ["t1", "t2"])
        self.assertEqual(client.connection("one").config().token, "t2")

    def test_the_watch_is_behind(self) -> None:
        """Late watch events do not replace newer credentials that a read returned."""
        self.hub.both()
        slow = Slow(self.hub.cluster.client())
        client = self.make(hub=slow)
        self.hub.cluster.end_watches()
        self.hub.secret(kubeconfig(token="t2"))
        self.hub.secret(kubeconfig(token="t3"))
        self.servers.taken["https://one.example"] = "t3"
        asking = self.secrets(client.get("one"))
        slow.answer()
        self.successResultOf(asking)
        tokens: list[str] = []
        credentials = client._spaces.find("one").credentials
        watched = credentials.watched

        def noted(*about: Any) -> bool:
            changed = watched(*about)
            tokens.append(credentials.config.token if credentials.config else "")
            return changed

        self.patch(credentials, "watched", noted)
        self.clock.advance(1)  # t2 comes by the watch now, and then t3
        self.assertEqual(tokens, ["t3", "t3"])

    def test_put_back(self) -> None:
        """After a restore to older resource versions, the watch is trusted again in the end."""
        self.hub.both()
        client = self.make()
        self.servers.taken["https://one.example"] = "t2"
        self.hub.cluster.version = 1000
        self.hub.cluster.end_watches()
        self.hub.secret(kubeconfig(token="t2"))
        self.successResultOf(self.secrets(client.get("one")))
        self.hub.cluster.version = 20
        self.hub.cluster.compact()
        self.clock.advance(AHEAD_SECONDS)
        self.hub.secret(kubeconfig(token="t0"))
        self.clock.advance(1)
        self.assertEqual(client.connection("one").config().token, "t0")

    def test_reread(self) -> None:
        """``reread`` reads the Secret; a watch event meanwhile makes a second call unnecessary."""
        self.hub.both()
        slow = Slow(self.hub.cluster.client())
        connection = self.make(hub=slow).connection("one")
        refused = connection.config()
        looking = connection.reread(refused)
        self.assertEqual(len(slow.waiting), 1)
        self.hub.secret(kubeconfig(token="t2"))
        self.assertTrue(self.successResultOf(connection.reread(refused)))
        slow.answer()
        self.assertTrue(self.successResultOf(looking))

    def test_stopped(self) -> None:
        """Stopping the client ends a pending read and leaves no timer."""
        self.hub.both()
        client = self.make(hub=Slow(self.hub.cluster.client()))
        connection = client.connection("one")
        looking = connection.reread(connection.config())
        self.successResultOf(client.stopService())
        self.assertFalse(self.successResultOf(looking))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_look_for_all(self) -> None:
        """Simultaneous 401 responses share one read of the Secret."""
        self.hub.both()
        slow = Slow(self.hub.cluster.client())
        client = self.make(hub=slow)
        self.hub.cluster.end_watches()
        self.servers.taken["https://one.example"] = "t2"
        self.hub.secret(kubeconfig(token="t2"))
        asking = [self.secrets(client.get("one")) for _ in range(5)]
        asking.pop().addErrback(lambda _: None).cancel()
        self.assertEqual(len(slow.waiting), 1)
        slow.answer()
        for each in asking:
            self.successResultOf(each)

    def test_nothing_new(self) -> None:
        """If the Secret is unchanged, the 401 is reported and the next read waits."""
        self.hub.both()
        client = self.make()
        self.servers.taken["https://one.example"] = "t2"
        for _ in range(3):
            failure = self.failureResultOf(self.secrets(client.get("one")), APIError)
        self.assertEqual(
            failure.value.message,
            'space "default/one" rejects the credentials '
            f'(secret {NAMESPACE}/external-one, key "kubeconfig" (context "x")): Unauthorized; '
            "replace the credentials there",
        )
        gets = [each for each in self.hub.cluster.requests if each[0] == "get"]
        self.assertEqual(len(gets), 1)
        self.clock.advance(PAUSE_SECONDS)
        self.failureResultOf(self.secrets(client.get("one")), APIError)
        gets = [each for each in self.hub.cluster.requests if each[0] == "get"]
        self.assertEqual(len(gets), 2)

    def test_nobody_answers(self) -> None:
        """A read of a cluster that does not answer ends after LOOK_SECONDS."""
        self.hub.both()
        slow = Slow(self.hub.cluster.client())
        client = self.make(hub=slow)
        self.servers.taken["https://one.example"] = "t2"
        asking = self.secrets(client.get("one"))
        self.clock.advance(LOOK_SECONDS)
        self.assertIn("rejects", self.failureResultOf(asking, APIError).value.message)

    def test_the_hub_is_away(self) -> None:
        """While the hub is away, known Spaces stay usable and ``problem`` says why."""
        self.hub.both()
        client = self.make()
        self.hub.cluster.problem = BadGateway("no route")
        self.hub.cluster.end_watches()
        self.clock.pump([1, 1, 1])
        self.assertIn("the known spaces may be outdated: no route", client.problem)
        self.successResultOf(self.secrets(client.get("one")))
        self.hub.cluster.problem = None
        self.hub.secret(kubeconfig(token="t2"))
        self.clock.pump([1] * 40)
        self.assertEqual(client.problem, "")
        self.assertEqual(client.connection("one").config().token, "t2")


class LifetimeTests(ClientTestCase):
    """The time between engaging and disengaging a Space."""

    def test_deleted(self) -> None:
        """SF 14: deleting a Space ends its connection and its client with the reason."""
        self.hub.both()
        client = self.make()
        connection, kube = client.connection("one"), client.get("one")
        waiting = connection.when_gone()
        self.assertNoResult(waiting)
        self.hub.remove(SPACE, "one")
        told = 'space "default/one" is gone: it was deleted'
        self.assertEqual(self.successResultOf(waiting), told)
        self.assertEqual(self.successResultOf(connection.when_gone()), told)
        self.assertEqual(
            self.listener.told,
            [("engaged", "default/one"), ("disengaged", "default/one", told)],
        )
        failure = self.failureResultOf(self.secrets(kube), ServiceUnavailable)
        self.assertIn(told, failure.value.message)
        self.refused(client, "one", kind=NotFound)
        self.assertEqual(client.all(), [])

    def test_being_deleted(self) -> None:
        """A Space is disengaged as soon as its deletion begins."""
        self.hub.both()
        client = self.make()
        self.hub.space(deleting=True)
        self.assertIn("being deleted", self.listener.told[-1][-1])
        self.assertIn("being deleted", self.refused(client, "one", kind=ServiceUnavailable))
        self.hub.remove(SPACE, "one")
        self.assertEqual(len(self.listener.told), 2)

    def test_stays(self) -> None:
        """A Space that is temporarily not Ready stays engaged with the same client."""
        self.hub.both()
        client = self.make()
        kube = client.get("one")
        for phase in (spaces.NOT_READY, spaces.INITIALIZING, spaces.READY):
            self.hub.space(phase=phase)
            self.assertIs(client.get("one"), kube)
        self.assertEqual(self.listener.told, [("engaged", "default/one")])

    def test_another_space(self) -> None:
        """A recreated Space gets a new client; the old one fails."""
        self.hub.both()
        client = self.make()
        kube = client.get("one")
        self.hub.remove(SPACE, "one")
        self.hub.space()
        self.assertEqual(
            [each[0] for each in self.listener.told], ["engaged", "disengaged", "engaged"]
        )
        self.assertIsNot(client.get("one"), kube)
        self.failureResultOf(self.secrets(kube), ServiceUnavailable)

    def test_another_physical_space(self) -> None:
        """A new physical space gets a new client after the Secret was read again."""
        self.hub.both(physical="p1")
        slow = Slow(self.hub.cluster.client())
        client = self.make(hub=slow)
        kube = client.get("one")
        self.hub.space(physical="p2")
        self.assertIn("another physical space", self.listener.told[-1][-1])
        self.refused(client, "one", kind=ServiceUnavailable)
        self.hub.secret(kubeconfig("https://two.example", "t2"))
        self.assertEqual(len(self.listener.told), 2)
        slow.answer()
        self.assertEqual(len(self.listener.told), 3)
        self.assertEqual(client.connection("one").config().server, "https://two.example")
        self.assertIsNot(client.get("one"), kube)

    def test_exchanged_while_nobody_answers(self) -> None:
        """If that read times out, the watch's copy of the Secret is used."""
        self.hub.both(physical="p1")
        slow = Slow(self.hub.cluster.client())
        client = self.make(hub=slow)
        self.hub.space(physical="p2")
        self.clock.advance(LOOK_SECONDS)
        client.get("one")

    def test_a_physical_space_known_later(self) -> None:
        """A physical UID that appears or disappears does not disengage the Space."""
        self.hub.both()
        self.make()
        self.hub.space(physical="p1")
        self.hub.space()
        self.assertEqual(len(self.listener.told), 1)

    def test_another_server(self) -> None:
        """Without a physical UID, a new address together with a new CA is another server."""
        self.hub.both()
        client = self.make()
        kube = client.get("one")
        other = base64.b64encode(b"CA of two").decode()
        self.hub.secret(kubeconfig("https://moved.example"))
        self.hub.secret(kubeconfig("https://moved.example", ca=other))
        self.assertIs(client.get("one"), kube)
        self.hub.secret(kubeconfig("https://two.example", ca=CA[::-1]))
        self.assertIsNot(client.get("one"), kube)
        self.assertIn("names another server", self.listener.told[1][-1])

    def test_one_of_many(self) -> None:
        """SF 14: a silent or a broken Space does not delay others."""
        self.hub.both()
        self.hub.both(kubeconfig("https://dead.example"), name="dead")
        self.hub.both(b"{", name="broken")
        self.servers.silent.add("https://dead.example")
        client = self.make()
        self.assertEqual({str(each.name) for each in client.all()}, {"default/dead", "default/one"})
        asking = self.secrets(client.get("dead"))
        self.successResultOf(self.secrets(client.get("one")))
        self.assertNoResult(asking)

    def test_changed(self) -> None:
        """Listeners get one call for each change of labels or credentials."""
        self.hub.both()
        client = self.make()
        connection = client.connection("one")
        self.assertEqual(self.listener.changes, [])
        self.hub.space(labels={"zone": "a"})
        self.hub.space(labels={"zone": "a"}, note="something else")
        self.assertEqual(self.listener.changes, [connection])
        self.assertEqual(connection.labels, {"zone": "a"})
        self.hub.secret(kubeconfig(token="t2"))
        self.hub.secret(kubeconfig(token="t2"))
        self.assertEqual(self.listener.changes, [connection] * 2)

    def test_waiting(self) -> None:
        """``waiting`` lists unreachable Spaces with the reason until they are deleted."""
        self.hub.both()
        self.hub.space("new", phase=spaces.INITIALIZING, secret=None)
        self.hub.space("ill", phase=spaces.NOT_READY, labels={"zone": "a"})
        client = self.make()
        told = {each.name.name: each for each in client.waiting()}
        self.assertEqual(set(told), {"new", "ill"})
        self.assertEqual((told["new"].credentials, told["ill"].credentials), (False, True))
        self.assertEqual((told["ill"].why, told["ill"].labels), ("it is NotReady", {"zone": "a"}))
        heard = self.listener.waiting
        self.hub.remove(SPACE, "ill")
        self.assertEqual(self.listener.waiting, heard + 1)
        self.hub.space("new", phase=spaces.INITIALIZING, secret=None, deleting=True)
        self.assertEqual((self.listener.waiting, list(client.waiting())), (heard + 2, []))

    def test_listeners(self) -> None:
        """A late listener gets the engaged Spaces; a failing listener does not affect others."""
        self.hub.both()
        client = self.make()
        late = Listener()
        end = client.follow(late)
        client.follow(object())  # type: ignore[arg-type]
        self.assertEqual(late.told, [("engaged", "default/one")])
        end()
        end()
        self.hub.remove(SPACE, "one")
        self.assertEqual(len(late.told), 1)
        self.assertEqual(len(self.listener.told), 2)
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 2)

    def test_stopped_and_started(self) -> None:
        """Stopping the client ends its connections; it can be started again."""
        self.hub.both()
        client = self.make()
        connection = client.connection("one")
        self.stop(client)
        self.assertEqual(
            self.successResultOf(connection.when_gone()),
            'space "default/one" is gone: this program is stopping',
        )
        self.assertEqual(self.hub.cluster.watches, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.refused(client, "one", kind=ServiceUnavailable)
        client.startService()
        self.assertIsNot(client.connection("one"), connection)
        self.assertEqual(len(self.listener.told), 3)


class _Refusing:
    """A client that may not read Secrets by their names."""

    def __init__(self, client: IKubeClient, why: str) -> None:
        self._client, self._why = client, why

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._client, verb)

    def list(self, resource: Any, namespace: str = "", **more: Any) -> Deferred[Any]:
        """See :meth:`IKubeClient.list`."""
        if more.get("field_selector"):
            raise Forbidden(self._why)
        return self._client.list(resource, namespace, **more)

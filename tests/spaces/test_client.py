"""Tests for :mod:`twisted_exec.spaces.client`, and what it is made of."""

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
from twisted_exec.spaces.connection import AHEAD_SECONDS, LOOK_SECONDS, PAUSE_SECONDS
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
    """Which Space is meant, and what becomes of asking for it."""

    def test_doors(self) -> None:
        """It is a service, and a client of Spaces; what it gives are clients."""
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
        """SF 14: of several the default provider's is meant, by the provider's name, not a namespace's."""
        for provider in ("kind", "default", "kcp"):
            self.hub.both(provider=provider)
        client = self.make()
        self.assertEqual(client.connection("one").name.provider, "default")
        self.assertEqual(client.connection("one", "kcp").name.provider, "kcp")

    def test_the_only_one(self) -> None:
        """Without a default provider's, the only one of the name is meant."""
        self.hub.both(provider="kind")
        self.assertEqual(self.make().connection("one").name.provider, "kind")

    def test_ambiguous(self) -> None:
        """Of several none is picked, and they are named."""
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
        """One that is not there is not found, and others of its name are told."""
        self.hub.both()
        client = self.make()
        self.assertEqual(self.refused(client, "two", kind=NotFound), 'there is no space "two"')
        self.assertEqual(
            self.refused(client, "one", "kcp", kind=NotFound),
            'there is no space "one" of the provider "kcp"; there is of provider "default"',
        )

    def test_not_read_yet(self) -> None:
        """Before the Spaces were read nothing is said to be missing; then who waits is told."""
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
        """Whoever may write Spaces in a namespace of their own is not taken for a provider."""
        self.hub.secret(namespace="evil")
        self.hub.space(namespace="evil", spec={"SpaceProviderDescName": "default"})
        self.refused(self.make(), "one", kind=NotFound)
        self.assertEqual(self.listener.told, [])

    def test_not_ready(self) -> None:
        """One that is not ready is told to be, with what its conditions say, and engaged when it is."""
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
    """From where a Space is seen."""

    def test_each(self) -> None:
        """SF 14: each client has its own viewpoint, whatever other clients there are."""
        self.hub.secret(kubeconfig("https://inside.example"), viewpoint=spaces.IN_CLUSTER)
        self.hub.secret(kubeconfig("https://outside.example"))
        self.hub.space(viewpoints=spaces.VIEWPOINTS)
        inside, outside = self.make(viewpoint=spaces.IN_CLUSTER), self.make()
        self.assertEqual(inside.connection("one").config().server, "https://inside.example")
        self.assertEqual(outside.connection("one").config().server, "https://outside.example")

    def test_missing(self) -> None:
        """Where there is the other one only, that is said, and so is what would help."""
        self.hub.both(spec={"accessscopetype": spaces.EXTERNAL})
        client = self.make(viewpoint=spaces.IN_CLUSTER)
        self.assertEqual(
            self.refused(client, "one", kind=ServiceUnavailable),
            'space "default/one" cannot be reached: it has no in-cluster kubeconfig, only an external '
            "one, as its accessscopetype is External; use that viewpoint, or give it the other one",
        )

    def test_neither(self) -> None:
        """A Space without any has none yet; an imported one was told none."""
        self.hub.space(secret=None)
        self.hub.space("two", namespace="lab", spec=IMPORTED, secret=None)
        client = self.make()
        self.assertIn("no kubeconfig yet", self.refused(client, "one", kind=ServiceUnavailable))
        told = self.refused(client, "two", kind=ServiceUnavailable)
        self.assertIn("names no Secret with a kubeconfig; set spec.externalSecretRef", told)

    def test_unknown(self) -> None:
        """A viewpoint that there is not is the program's mistake."""
        with self.assertRaises(ValueError):
            SpaceClient(self.hub.cluster.client(), self.clock, viewpoint="Inside")


class SecretTests(ClientTestCase):
    """Where credentials come from."""

    def test_imported(self) -> None:
        """SF 14: a Secret that a user made, encoded once, is followed by its name alone."""
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
        """Where the Secret is named in ``status``, as upstream had it, and encoded twice, it is read."""
        self.hub.space(namespace="lab", secret="mine", spec=IMPORTED)
        self.hub.secret(base64.b64encode(kubeconfig()), own="mine", namespace="lab")
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(client.connection("one").config().token, "t1")

    def test_of_another_namespace(self) -> None:
        """Who may write Spaces cannot use Secrets of elsewhere, which they perhaps may not read."""
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
        """SF 14: a Secret that comes after its Space is taken when it comes."""
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
        """Secrets with the manager's label are one watch, even where they come after their Spaces."""
        client = self.make()
        for name in ("one", "two", "three"):
            self.hub.space(name)
            self.hub.secret(name=name)
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(len(client.all()), 3)
        self.assertEqual(self.hub.cluster.watches, 2)

    def test_upstreams(self) -> None:
        """Secrets of upstream's manager bear no label: they are followed by their names."""
        self.hub.secret(base64.b64encode(kubeconfig()), own="external-one")
        self.hub.space()
        client = self.make()
        self.clock.advance(SETTLE_SECONDS)
        client.get("one")
        self.assertEqual(self.hub.cluster.watches, 3)
        self.hub.remove(SPACE, "one")
        self.assertEqual(self.hub.cluster.watches, 2)

    def test_label_given_later(self) -> None:
        """One that gets the label is in the one watch from then on; one that loses it is not lost."""
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
        """What is wrong with a Secret is said, by its name and key, and nothing of what is in it."""
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
        """What cannot be used leaves the last that could in force; the log says so once."""
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
        """A Secret that is deleted takes the credentials along; the Space is still the same one."""
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
        """What this program may not read is said with the server's words."""
        self.hub.space(namespace="lab", spec=IMPORTED, secret="mine")
        hub = _Refusing(self.hub.cluster.client(), "secrets is forbidden")
        client = self.make(hub=hub)
        self.clock.advance(SETTLE_SECONDS)
        told = self.refused(client, "one", kind=ServiceUnavailable)
        self.assertIn("secret lab/mine cannot be read: secrets is forbidden", told)

    def test_namespaces(self) -> None:
        """Who may read one provider's namespace only, says that one: no other is asked for."""
        self.hub.both()
        self.hub.both(provider="kcp", name="two")
        client = self.make(namespaces=[spaces.namespace_of("kcp")])
        self.refused(client, "one", kind=NotFound)
        client.get("two")
        asked = {namespace for _, _, namespace, _ in self.hub.cluster.requests}
        self.assertEqual(asked, {"spaceprovider-kcp"})

    def test_by_name_only(self) -> None:
        """Who may read single Secrets only has each followed by its name."""
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
        """SF 14: a rotated Secret reaches the same client at once, and what runs over it goes on."""
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
        """A Secret that is written anew with the same kubeconfig is no rotation."""
        self.hub.both()
        client = self.make()
        config = client.connection("one").config()
        self.hub.secret()
        self.hub.space(labels={"a": "b"})
        self.assertIs(client.connection("one").config(), config)
        self.assertEqual(client.connection("one").labels, {"a": "b"})

    def test_looked_at_again(self) -> None:
        """A 401 has the Secret itself looked at, not the watch's copy, and the request sent once more."""
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
        """What the watch tells after a look is not taken back to what was before it."""
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
        """A cluster that was put back to older versions is believed after a while."""
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
        """Who keeps a client of their own over a Space has the same look."""
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
        """A look under way ends with its client, and leaves no timer."""
        self.hub.both()
        client = self.make(hub=Slow(self.hub.cluster.client()))
        connection = client.connection("one")
        looking = connection.reread(connection.config())
        self.successResultOf(client.stopService())
        self.assertFalse(self.successResultOf(looking))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_look_for_all(self) -> None:
        """However many are answered 401 at once, the Secret is looked at once."""
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
        """Where the Secret holds the same, the refusal is told, and the next look is not at once."""
        self.hub.both()
        client = self.make()
        self.servers.taken["https://one.example"] = "t2"
        for _ in range(3):
            failure = self.failureResultOf(self.secrets(client.get("one")), APIError)
        self.assertEqual(
            failure.value.message,
            'space "default/one" rejects our credentials '
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
        """A look at a cluster that does not answer takes a few seconds and no more."""
        self.hub.both()
        slow = Slow(self.hub.cluster.client())
        client = self.make(hub=slow)
        self.servers.taken["https://one.example"] = "t2"
        asking = self.secrets(client.get("one"))
        self.clock.advance(LOOK_SECONDS)
        self.assertIn("rejects", self.failureResultOf(asking, APIError).value.message)

    def test_the_hub_is_away(self) -> None:
        """While the cluster with the Spaces is away everything that is known goes on, and that is said."""
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
    """From when a Space is engaged until it is not."""

    def test_deleted(self) -> None:
        """SF 14: a Space that goes ends what was made of it, with the reason; no program ends by that."""
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
        """It ends when its deletion begins: there is no way back from there."""
        self.hub.both()
        client = self.make()
        self.hub.space(deleting=True)
        self.assertIn("being deleted", self.listener.told[-1][-1])
        self.assertIn("being deleted", self.refused(client, "one", kind=ServiceUnavailable))
        self.hub.remove(SPACE, "one")
        self.assertEqual(len(self.listener.told), 2)

    def test_stays(self) -> None:
        """One that is not ready for a while, or whose provider is away, stays what it is."""
        self.hub.both()
        client = self.make()
        kube = client.get("one")
        for phase in (spaces.NOT_READY, spaces.INITIALIZING, spaces.READY):
            self.hub.space(phase=phase)
            self.assertIs(client.get("one"), kube)
        self.assertEqual(self.listener.told, [("engaged", "default/one")])

    def test_another_space(self) -> None:
        """Another object of the same name is another Space."""
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
        """So is one that stands for another physical space; its Secret is looked at before it is used."""
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
        """When that look brings nothing, what the watch has is used."""
        self.hub.both(physical="p1")
        slow = Slow(self.hub.cluster.client())
        client = self.make(hub=slow)
        self.hub.space(physical="p2")
        self.clock.advance(LOOK_SECONDS)
        client.get("one")

    def test_a_physical_space_known_later(self) -> None:
        """That it is known now what a Space stands for changes nothing, nor that it is not for a while."""
        self.hub.both()
        self.make()
        self.hub.space(physical="p1")
        self.hub.space()
        self.assertEqual(len(self.listener.told), 1)

    def test_another_server(self) -> None:
        """Where nobody knows what it stands for, another address with another CA is another server."""
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
        """SF 14: a Space that does not answer keeps no other waiting, nor does one that is broken."""
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
        """Who chooses Spaces by labels, or waits for other credentials, hears of both, once each."""
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
        """Who cannot be reached is there all the same, until it is deleted."""
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
        """Who comes later hears of those that are there; who fails, or has left, is no matter."""
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
        """A client that is stopped ends what it gave, and can be started again."""
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

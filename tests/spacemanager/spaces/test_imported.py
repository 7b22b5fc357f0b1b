"""
Tests for :mod:`twisted_exec.spacemanager.spaces.imported` and
:mod:`~twisted_exec.spacemanager.spaces.imported`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.live import World, condition, message
from twisted_exec.api import spaces
from twisted_exec.api.kinds import CLUSTERPROFILES
from twisted_exec.api.kinds.kind import Object
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import CREDENTIALS_VALID, PHYSICAL_SPACE_READY, SYNCED
from twisted_exec.spacemanager.spaces.imported import made_anew, record_of

HOME = "team"


class ImportedTests(SynchronousTestCase):
    """Spaces that somebody gave us."""

    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.stop)
        self.world.tokens.add("good")
        self.manager = self.world.manager()
        self.world.settle(2)

    def give(self, name: str = "theirs", token: str = "good", **data: bytes) -> None:
        told = data or {"kubeconfig": self.world.given(token)}
        self.world.secret(name, HOME, **told)

    def make(self, name: str = "one", **spec: Any) -> None:
        told = spec or {"externalSecretRef": {"name": "theirs"}}
        self.world.put(spaces.SPACES, name, HOME, spec={"Type": "imported", **told})
        self.world.settle(3)

    def seen(self, name: str = "one") -> Object:
        return self.world.cluster.objects[spaces.SPACES, HOME, name]

    def said(self, type: str) -> tuple[str, str]:
        return condition(self.seen(), type)

    def delete(self) -> None:
        self.world.done(self.world.client.delete(spaces.SPACES, "one", HOME))
        self.world.settle(5)

    def test_ready(self) -> None:
        """It is Ready when it answers and lets us in; its Secret is the user's."""
        self.give()
        self.make()
        status = self.seen()["status"]
        self.assertEqual(status["Phase"], "Ready")
        self.assertEqual(status["externalSecretRef"], {"name": "theirs", "namespace": HOME})
        (endpoint,) = status["endpoints"]
        self.assertEqual(endpoint, {"viewpoint": "External", "server": "https://127.0.0.1:1"})
        self.assertEqual(self.world.secrets(), ["theirs"])
        self.assertNotIn(spaces.PROVIDER_REACHABLE, [one["type"] for one in status["conditions"]])
        self.assertIn((CLUSTERPROFILES.resource, HOME, "one"), self.world.cluster.objects)

    def test_twice_encoded(self) -> None:
        """SF 14: a user's Secret is read as users write it, and as upstream had it."""
        self.give(kubeconfig=base64.b64encode(self.world.given("good")))
        self.make()
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_named_in_status(self) -> None:
        """As upstream's users say it; who re-makes it finds it in spec."""
        self.give()
        space = {"Type": "imported"}
        self.world.put(spaces.SPACES, "one", HOME, spec=space)
        told = {
            **self.seen(),
            "status": {"inClusterSecretRef": {"name": "theirs", "namespace": HOME}},
        }
        self.world.client.update(spaces.SPACES, told, HOME, subresource="status")
        self.world.settle(60)
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")
        self.delete()
        self.world.settle(5)
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_missing_then_there(self) -> None:
        """A Secret that is not there is said not to be, and noticed when it is."""
        self.make()
        self.assertEqual(self.said(CREDENTIALS_VALID), ("False", "SecretMissing"))
        self.assertIn(f"{HOME}/theirs", message(self.seen(), SYNCED))
        self.give()
        self.world.settle(20)
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_bad_secrets(self) -> None:
        """What is wrong with a Secret is said, with what would help, and without what is in it."""
        wrong: dict[str, dict[str, bytes]] = {
            "there is no such key": {"config": b"x"},
            "it is empty": {"kubeconfig": b" "},
            "is not taken from here": {
                "kubeconfig": self.world.given("good").replace(b'"token"', b'"tokenFile"')
            },
            "holds no credentials": {"kubeconfig": self.world.given("")},
        }
        for told, data in wrong.items():
            self.give(**data)
            self.make()
            self.assertEqual(self.said(CREDENTIALS_VALID), ("False", "Unusable"), told)
            self.assertIn(told, message(self.seen(), CREDENTIALS_VALID))
            self.assertNotIn("good", json.dumps(self.seen()))
            self.world.settle(20)

    def test_replaced_by_garbage(self) -> None:
        """A Ready Space whose Secret becomes unusable is NotReady within seconds, and recovers as fast."""
        self.give()
        self.make()
        self.give(kubeconfig=b"garbage")
        self.world.settle(3)
        self.assertEqual(self.said(CREDENTIALS_VALID), ("False", "Unusable"))
        self.assertEqual(self.seen()["status"]["Phase"], "NotReady")
        self.give()
        self.world.settle(3)
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_replaced_by_refused(self) -> None:
        """A Ready Space whose Secret gets a rejected token is NotReady within seconds, and recovers as fast."""
        self.give()
        self.make()
        self.world.revoked.add("bad")
        self.give(token="bad")
        self.world.settle(3)
        self.assertEqual(self.said(CREDENTIALS_VALID), ("False", "Refused"))
        self.assertEqual(self.seen()["status"]["Phase"], "NotReady")
        self.give()
        self.world.settle(3)
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_secret_deleted(self) -> None:
        """A Ready Space whose Secret is deleted is NotReady within seconds, and recovers as fast."""
        self.give()
        self.make()
        self.world.drop(SECRETS.resource, "theirs", HOME)
        self.world.settle(3)
        self.assertEqual(self.said(CREDENTIALS_VALID), ("False", "SecretMissing"))
        self.give()
        self.world.settle(3)
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_watches_end(self) -> None:
        """Each named Secret has one watch, which ends with the reference and with the Space."""
        before = self.world.cluster.watches
        self.give()
        self.give("others")
        self.make("one")
        self.make("two")
        self.assertEqual(self.world.cluster.watches, before + 1)
        self.make("two", externalSecretRef={"name": "others"})
        self.assertEqual(self.world.cluster.watches, before + 2)
        for name in ("one", "two"):
            notes = {"metadata": {"annotations": {spaces.FORGET: "true"}}}
            self.world.client.patch(spaces.SPACES, name, notes, HOME)
            self.world.drop(spaces.SPACES, name, HOME)
        self.world.settle(5)
        self.assertEqual(self.world.names(HOME), [])
        self.assertEqual(self.world.cluster.watches, before)

    def test_none_named(self) -> None:
        """Without any Secret it is said where one is to be named."""
        self.make(accessscopetype="Both")
        self.assertEqual(self.said(SYNCED), ("False", "NoSecret"))
        self.assertIn("spec.inClusterSecretRef", message(self.seen(), SYNCED))

    def test_elsewhere(self) -> None:
        """Who may make a Space in one namespace does not read Secrets of another by it."""
        self.world.secret("theirs", "kube-system", kubeconfig=self.world.given("good"))
        self.make(externalSecretRef={"name": "theirs", "namespace": "kube-system"})
        self.assertEqual(self.said(SYNCED), ("False", "SecretElsewhere"))
        self.assertNotIn("endpoints", self.seen()["status"])
        asked = [
            each for each in self.world.cluster.requests if each[2:] == ("kube-system", "theirs")
        ]
        self.assertEqual([each for each in asked if each[0] == "get"], [])

    def test_one_of_two(self) -> None:
        """One viewpoint is enough to be probed; what is the matter with the other one is said."""
        self.give()
        self.make(externalSecretRef={"name": "theirs"}, inClusterSecretRef={"name": "absent"})
        self.assertEqual(self.said(SYNCED), ("False", "SecretMissing"))
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_revoked_and_renewed(self) -> None:
        """Credentials that are good no more are said so, and new ones noticed."""
        self.give()
        self.make()
        self.world.revoked.add("good")
        self.world.settle(700)
        self.assertEqual(self.said(CREDENTIALS_VALID), ("False", "Refused"))
        self.assertEqual(
            message(self.seen(), CREDENTIALS_VALID),
            f"the API server does not take the credentials; put them into secret {HOME}/theirs",
        )
        self.assertEqual(self.seen()["status"]["Phase"], "NotReady")
        self.world.tokens.add("newer")
        self.give(token="newer")
        self.world.settle(20)
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")

    def test_unreachable(self) -> None:
        """What cannot be reached is Unknown, and what was Ready stays so; there is one Event of it."""
        self.give()
        self.make()
        self.world.tokens.clear()
        self.world.settle(700)
        self.assertEqual(self.said(PHYSICAL_SPACE_READY), ("Unknown", "Unreachable"))
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")
        self.assertEqual(self.world.reasons("one"), ["Ready", "Unreachable"])

    def test_cannot_rotate(self) -> None:
        """Its credentials are its user's."""
        self.give()
        self.make()
        patch = {"metadata": {"annotations": {spaces.ROTATE: "1"}}}
        self.world.client.patch(spaces.SPACES, "one", patch, HOME)
        self.world.settle(3)
        self.assertIn("CannotRotate", self.world.reasons("one"))

    def test_made_anew(self) -> None:
        """Deleted while it lives, it is there again, with what its user said of it."""
        self.give()
        self.make()
        notes = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
        self.world.client.patch(spaces.SPACES, "one", notes, HOME)
        self.world.settle(2)
        uid, spec = self.seen()["metadata"]["uid"], self.seen()["spec"]
        self.delete()
        self.assertNotEqual(self.seen()["metadata"]["uid"], uid)
        self.assertEqual(self.seen()["spec"], spec)
        self.assertEqual(self.seen()["metadata"]["labels"], {"a": "b"})
        self.assertEqual(self.seen()["metadata"]["annotations"], {"c": "d"})
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")
        self.assertEqual(self.world.secrets(), ["theirs"])

    def test_forgotten(self) -> None:
        """Who says so first lets it go."""
        self.give()
        self.make()
        patch = {"metadata": {"annotations": {spaces.FORGET: "true"}}}
        self.world.client.patch(spaces.SPACES, "one", patch, HOME)
        self.delete()
        self.assertEqual((self.world.names(HOME), self.world.secrets()), ([], ["theirs"]))

    def test_with_its_namespace(self) -> None:
        """In a namespace that is going nothing is made anew, and nothing keeps it."""
        self.give()
        self.make()
        create = self.world.cluster.put

        def put(key: Any, obj: Any) -> Any:
            if key not in self.world.cluster.objects:
                from twisted_exec.api.status import Forbidden

                raise Forbidden(f"namespace {HOME} is being terminated")
            return create(key, obj)

        self.world.cluster.put = put  # type: ignore[method-assign]
        self.delete()
        self.world.settle(5)
        self.assertEqual(self.world.names(HOME), [])

    def test_forged_record(self) -> None:
        """A record that somebody else wrote makes an imported Space and no other."""
        space = {
            "metadata": {"name": "x", "namespace": HOME, "uid": "u"},
            "spec": {"Type": "managed"},
        }
        told = made_anew(record_of(space))
        assert told is not None
        self.assertEqual(told["spec"]["Type"], "imported")
        for data in ("", "bm9uZQ==", base64.b64encode(b"[]").decode()):
            record = {**record_of(space), "data": {"space.json": data}}
            self.assertIsNone(made_anew(record))

    def test_their_secret_with_our_name(self) -> None:
        """A user's Secret that is called as ours would be is not touched."""
        self.give("external-one")
        self.make(externalSecretRef={"name": "external-one"})
        self.assertEqual(self.seen()["status"]["Phase"], "Ready")
        before = self.world.cluster.objects[SECRETS.resource, HOME, "external-one"]
        patch = {"metadata": {"annotations": {spaces.FORGET: "true"}}}
        self.world.client.patch(spaces.SPACES, "one", patch, HOME)
        self.delete()
        self.assertIs(self.world.cluster.objects[SECRETS.resource, HOME, "external-one"], before)

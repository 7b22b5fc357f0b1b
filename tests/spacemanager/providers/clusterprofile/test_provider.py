"""
ClusterProfiles as other programs write them, and the Secrets that say who we are to their clusters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.providers.cluster_world import kubeconfig
from tests.spacemanager.providers.clusterprofile.test_provider_contract import (
    ProfileWorld,
    cluster,
    provider,
)
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES
from twisted_exec.api.spaces import CLUSTERPROFILE, EXTERNAL, IN_CLUSTER, MANAGED_BY, MANAGER
from twisted_exec.api.status import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION, load_inline
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    ISpaceProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.cluster import ProviderCluster
from twisted_exec.spacemanager.providers.clusterprofile import provider as clusterprofile
from twisted_exec.spacemanager.providers.clusterprofile.profiles import Places
from twisted_exec.spacemanager.providers.clusterprofile.provider import ClusterProfiles
from twisted_exec.testing.cluster import MemoryCluster

RED = Physical("red")
FOR_RED = {"x-k8s.io/cluster-profile": "red"}


def token_provider(name: str, cluster_name: str, **more: Any) -> Object:
    """An access provider that reads a token."""
    extension = {"name": EXEC_EXTENSION, "extension": {"clusterName": cluster_name}}
    return {"name": "secretreader", "cluster": {**cluster(name), "extensions": [extension], **more}}


class ProfileCase(SynchronousTestCase):
    """A cluster with ClusterProfiles, and an adaptor."""

    def setUp(self) -> None:
        self.world = ProfileWorld()
        self.adaptor = self.adaptor_of()

    def adaptor_of(self, **places: Any) -> ClusterProfiles:
        return ClusterProfiles(self.world.reached(), self.world.time, Places(**places), "fleet")

    def get(self, name: str = "red", parent: str = "") -> SpaceInfo:
        """Return a space, after a check that lists agree."""
        physical = Physical(name, parent)
        info: SpaceInfo = self.successResultOf(self.adaptor.get(physical))
        listed = {each.physical: each for each in self.successResultOf(self.adaptor.list_spaces())}
        seen = listed[physical]
        self.assertEqual(
            (seen.state, seen.reason, seen.version), (info.state, info.reason, info.version)
        )
        return info

    def config(self, info: SpaceInfo | None = None) -> ClientConfig:
        """Return the client configuration of a usable space."""
        info = info or self.get()
        self.assertEqual((info.state, info.message), (USABLE, ""))
        self.assertEqual(set(info.access), {IN_CLUSTER, EXTERNAL})
        return load_inline(info.access[EXTERNAL].kubeconfig, "it", environ={})

    def broken(self) -> str:
        info = self.get()
        self.assertEqual(
            (info.state, info.reason, dict(info.access)), (BROKEN, "KubeconfigRefused", {})
        )
        return info.message

    def waiting(self) -> str:
        info = self.get()
        self.assertEqual((info.state, info.reason), (BUILDING, "CredentialsMissing"))
        return info.message


class WayTests(ProfileCase):
    """Access to the cluster of a profile."""

    def test_token(self) -> None:
        """``secretreader``: the Secret named after the cluster has a token."""
        self.world.put_profile("red", [token_provider("red", "spoke-1")])
        self.world.put_secret("spoke-1", token="the-token\n")
        config = self.config()
        self.assertEqual((config.server, config.token), ("https://red.example", "the-token"))

    def test_kubeconfig(self) -> None:
        """``kubeconfig-secretreader``: user from a kubeconfig, server from the profile."""
        self.world.put_profile("red", [provider("red", "s")])
        self.world.put_secret("s", value=kubeconfig("https://elsewhere", "its-token"))
        config = self.config()
        self.assertEqual((config.server, config.token), ("https://red.example", "its-token"))

    def test_user_alone(self) -> None:
        """That kubeconfig may have no clusters."""
        told = kubeconfig("https://x", "its-token")
        self.world.put_profile("red", [provider("red", "s")])
        self.world.put_secret("s", value={**told, "clusters": []})
        self.assertEqual(self.config().token, "its-token")

    def test_context(self) -> None:
        """The profile can select a context; a missing context is refused."""
        told = kubeconfig("https://x", "current")
        told["users"].append({"name": "other", "user": {"token": "chosen"}})
        told["contexts"].append({"name": "o", "context": {"cluster": "c", "user": "other"}})
        self.world.put_profile("red", [provider("red", "s", context="o")])
        self.world.put_secret("s", value=told)
        self.assertEqual(self.config().token, "chosen")
        self.world.put_profile("red", [provider("red", "s", context="p")])
        self.assertIn('secret default/s, key "value": no context "p"', self.broken())

    def test_older_name(self) -> None:
        """The older member ``credentialProviders`` is read too."""
        self.world.put_secret("s", token="old")
        self.world.put_profile("red", [token_provider("red", "s")], member="credentialProviders")
        self.assertEqual(self.config().token, "old")

    def test_pushed(self) -> None:
        """The oldest form, a Secret labelled with the profile's name, has a whole kubeconfig."""
        self.world.put_profile("red")
        self.assertIn("no Secret is labelled x-k8s.io/cluster-profile for it", self.waiting())
        for key in ("Config", "config"):
            told = {key: kubeconfig("https://its-own", "pushed")}
            self.world.put_secret("any", labels=FOR_RED, **told)
            config = self.config()
            self.assertEqual((config.server, config.token), ("https://its-own", "pushed"))

    def test_pushed_to_several(self) -> None:
        """Of several pushed Secrets only the Secret labelled for this consumer is used."""
        self.world.put_profile("red")
        for consumer in ("kueue", "argo"):
            labels = {**FOR_RED, "x-k8s.io/cluster-inventory-consumer": consumer}
            self.world.put_secret(consumer, labels=labels, Config=kubeconfig("https://x", consumer))
        self.assertIn("2 Secrets are labelled x-k8s.io/cluster-profile=red; label", self.waiting())
        labels = {**FOR_RED, "x-k8s.io/cluster-inventory-consumer": MANAGER}
        self.world.put_secret("ours", labels=labels, Config=kubeconfig("https://x", "ours"))
        self.assertEqual(self.config().token, "ours")

    def test_pushed_elsewhere(self) -> None:
        """A Secret labelled for a profile of another namespace is ignored."""
        self.world.put_profile("red")
        labels = {**FOR_RED, "x-k8s.io/cluster-profile-namespace": "fleet"}
        self.world.put_secret("any", labels=labels, Config=kubeconfig("https://x", "t"))
        self.assertIn("no Secret is labelled", self.waiting())

    def test_order(self) -> None:
        """The first access provider with a Secret is used; pushed Secrets come last."""
        self.world.put_profile("red", [provider("red", "one"), token_provider("red", "two")])
        self.world.put_secret("any", labels=FOR_RED, Config=kubeconfig("https://x", "pushed"))
        versions = []
        for put, token in (
            (lambda: None, "pushed"),
            (lambda: self.world.put_secret("two", token="second"), "second"),
            (lambda: self.world.put_secret("one", value=kubeconfig("https://x", "first")), "first"),
        ):
            put()
            info = self.get()
            self.assertEqual(self.config(info).token, token)
            versions.append(info.version)
        self.assertEqual(len(set(versions)), 3)

    def test_tls(self) -> None:
        """Each profile sets its own TLS server name, proxy and verification."""
        self.world.put_secret("s", token="t")
        named = {"tls-server-name": "real.name", "proxy-url": "http://proxy:3128"}
        self.world.put_profile("red", [token_provider("red", "s", **named)])
        self.world.put_profile("blue", [token_provider("blue", "s")])
        open = token_provider("green", "s", **{"insecure-skip-tls-verify": True})
        del open["cluster"]["certificate-authority-data"]
        self.world.put_profile("green", [open])
        config = self.config()
        self.assertEqual(
            (config.tls_server_name, config.proxy_url, config.insecure_skip_tls_verify),
            ("real.name", "http://proxy:3128", False),
        )
        config = self.config(self.get("blue"))
        self.assertEqual((config.tls_server_name, config.proxy_url), ("", ""))
        config = self.config(self.get("green"))
        self.assertTrue(config.insecure_skip_tls_verify)

    def test_one_user(self) -> None:
        """SF 2: only the user that is needed is handed out."""
        told = kubeconfig("https://x", "mine")
        told["users"].append({"name": "root", "user": {"token": "root's"}})
        self.world.put_profile("red", [provider("red", "s")])
        self.world.put_secret("s", value=told)
        given = json.loads(self.get().access[EXTERNAL].kubeconfig)
        self.assertEqual(len(given["users"]), 1)
        self.assertNotIn("root", json.dumps(given))
        self.assertNotIn("extensions", given["clusters"][0]["cluster"])


class RefusalTests(ProfileCase):
    """Refused credentials and clusters."""

    def test_tokens_of_the_cluster(self) -> None:
        """ServiceAccount tokens and the manager's own Secrets are not sent anywhere."""
        self.world.put_profile("red", [token_provider("evil", "s")])
        self.world.put_secret("s", token="the cluster's own")
        key = (SECRETS.resource, "default", "s")
        secret = self.world.cluster.objects[key]
        for change in (
            {"type": "kubernetes.io/service-account-token"},
            {"metadata": {**secret["metadata"], "labels": {MANAGED_BY: MANAGER}}},
        ):
            self.world.cluster.put(key, {**secret, **change})
            self.assertIn("are not sent to other clusters", self.waiting())

    def test_program(self) -> None:
        """Users with programs or local files are refused."""
        self.world.put_profile("red", [provider("red", "s")])
        for key, value in (
            ("exec", {"command": "evil", "apiVersion": "client.authentication.k8s.io/v1"}),
            ("tokenFile", "/etc/shadow"),
            ("client-certificate", "/etc/ssl/x"),
        ):
            self.world.put_secret("s", value=kubeconfig("https://x", "", **{key: value}))
            self.assertIn(f"{key} is not taken from here", self.broken())

    def test_file_of_authority(self) -> None:
        """A cluster with its CA in a local file is refused."""
        self.world.put_secret("s", token="t")
        named = {"certificate-authority": "/etc/ssl/x"}
        self.world.put_profile("red", [token_provider("red", "s", **named)])
        self.assertIn("certificate-authority is not taken from here", self.broken())

    def test_no_server(self) -> None:
        """A cluster without a server is refused."""
        self.world.put_secret("s", token="t")
        told = token_provider("red", "s")
        del told["cluster"]["server"]
        self.world.put_profile("red", [told])
        self.assertIn("no server is given", self.broken())

    def test_in_the_clear(self) -> None:
        """A token is not sent to a server without TLS."""
        self.world.put_secret("s", token="t")
        self.world.put_profile("red", [token_provider("red", "s", server="http://red.example")])
        self.assertIn("credentials would travel in the clear", self.broken())

    def test_no_token(self) -> None:
        """An invalid token is refused, without quoting it."""
        self.world.put_profile("red", [token_provider("red", "s")])
        self.world.put_secret("s", token="a b\r\nX-Evil: yes")
        told = self.broken()
        self.assertIn('secret default/s, key "token": not a token', told)
        self.assertNotIn("Evil", told)

    def test_no_credentials(self) -> None:
        """A kubeconfig without credentials is refused."""
        self.world.put_profile("red", [provider("red", "s")])
        self.world.put_secret("s", value=kubeconfig("https://x", ""))
        self.assertIn("it holds no credentials", self.broken())

    def test_other_namespace(self) -> None:
        """A Secret of another namespace is read only if the provider allows the namespace."""
        self.world.put_profile("red", [provider("red", "s", namespace="kube-system")])
        self.world.put_secret("s", "kube-system", value=kubeconfig("https://x", "theirs"))
        self.assertIn("namespace kube-system, which the provider does not allow", self.waiting())
        asked = [each[2] for each in self.world.cluster.requests if each[1] == "secrets"]
        self.assertNotIn("kube-system", asked)
        self.adaptor = self.adaptor_of(secrets=["kube-system"])
        self.assertEqual(self.config().token, "theirs")

    def test_unusable_ways(self) -> None:
        """An unusable access provider is reported with its problem."""
        nameless = {"name": "secretreader", "cluster": cluster("red")}
        for told, problem in (
            ([provider("red", "")], "has no name that is a Secret's name"),
            ([provider("red", "../x")], "has no name that is a Secret's name"),
            ([provider("red", "s", key="")], "names no key"),
            ([nameless], "access provider secretreader: the extension"),
            ([{"name": "gke"}, {"name": "eks"}], "(the profile has eks, gke)"),
            ([provider("red", "s")], 'secret default/s has no value for "value"'),
        ):
            self.world.put_profile("red", told)
            self.assertIn(problem, self.waiting())

    def test_odd(self) -> None:
        """An invalid profile is listed and does not affect others."""
        self.world.put_profile("red", [{"name": 3, "cluster": "x"}, {"name": "secretreader"}])
        self.world.put(
            CLUSTERPROFILES, "odd", {"spec": "x", "status": {"accessProviders": {}}}, "default"
        )
        listed = self.successResultOf(self.adaptor.list_spaces())
        self.assertEqual([info.physical.name for info in listed], ["odd", "red"])
        self.assertEqual({info.state for info in listed}, {BUILDING})


class ProfileTests(ProfileCase):
    """Listing profiles, and their states."""

    def test_places(self) -> None:
        """Namespaces are parents; the default namespace is the default parent."""
        for place in ("default", "fleet-b", "fleet-a"):
            self.world.put_profile("red", namespace=place)
        places = [RED, Physical("red", "fleet-a"), Physical("red", "fleet-b")]
        self.assertEqual(list(self.successResultOf(self.adaptor.list_names())), places)
        self.assertEqual(self.get("red", "fleet-a").physical, places[1])
        for parent in ("default", "a/b", "../x", "fleet-c"):
            self.failureResultOf(self.adaptor.get(Physical("red", parent)), NotFound)

    def test_only(self) -> None:
        """A provider limited to one namespace requests no other."""
        for place in ("default", "fleet-a"):
            self.world.put_profile("red", namespace=place)
        self.adaptor = self.adaptor_of(default="fleet-a", only=True)
        self.assertEqual(self.adaptor.default_parent, "fleet-a")
        self.assertEqual(list(self.successResultOf(self.adaptor.list_names())), [RED])
        self.get()
        self.failureResultOf(self.adaptor.get(Physical("red", "default")), NotFound)
        self.adaptor.watch(lambda _: None)
        self.assertEqual({each[2] for each in self.world.cluster.requests[-4:]}, {"fleet-a"})

    def test_ours(self) -> None:
        """Profiles that the Space Manager published are ignored."""
        self.world.put_profile("red", manager=MANAGER)
        self.assertEqual(self.successResultOf(self.adaptor.list_names()), [])
        self.assertEqual(self.successResultOf(self.adaptor.list_spaces()), [])
        self.failureResultOf(self.adaptor.get(RED), NotFound)
        self.successResultOf(self.adaptor.delete(RED, "uid"))

    def test_health(self) -> None:
        """A cluster with ControlPlaneHealthy False or Unknown is not usable."""
        self.world.put_secret("s", token="t")
        for status, state in (("True", USABLE), ("False", BUILDING), ("Unknown", BUILDING)):
            told = {
                "type": "ControlPlaneHealthy",
                "status": status,
                "reason": "Lost",
                "message": "no heartbeat\nfor 5m",
            }
            self.world.put_profile("red", [token_provider("red", "s")], conditions=[told])
            self.assertEqual(self.get().state, state)
        info = self.get()
        self.assertEqual((info.reason, info.message), ("Lost", "no heartbeat for 5m"))

    def test_going(self) -> None:
        """A profile with a deletionTimestamp is going."""
        self.world.put_profile("red")
        there = self.world.find(CLUSTERPROFILES, "red", "default")
        assert there is not None
        there["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.world.put(CLUSTERPROFILES, "red", there, "default")
        self.assertEqual(self.get().state, GOING)

    def test_create(self) -> None:
        """Creating is refused; for an existing profile, the message advises an unmanaged Space."""
        error = self.failureResultOf(
            self.adaptor.create(RED, SpaceRequest("uid")), BadRequest
        ).value
        self.assertIn(
            "discovers the clusters of ClusterProfiles, and cannot create any", error.message
        )
        self.world.put_profile("red")
        error = self.failureResultOf(
            self.adaptor.create(RED, SpaceRequest("uid")), AlreadyExists
        ).value
        self.assertIn("make that Space unmanaged", error.message)

    def test_delete(self) -> None:
        """Deleting a profile is refused; deleting a missing profile succeeds."""
        self.world.put_profile("red")
        for owner in ("uid", ""):
            self.failureResultOf(self.adaptor.delete(RED, owner), Conflict)
        self.assertIsNotNone(self.world.find(CLUSTERPROFILES, "red", "default"))
        self.world.drop(CLUSTERPROFILES, "red", "default")
        self.successResultOf(self.adaptor.delete(RED, "uid"))

    def test_many_namespaces(self) -> None:
        """Listing profiles in many namespaces takes one request for Secrets."""
        for number in range(30):
            self.world.put_profile("red", namespace=f"fleet-{number}")
        before = len(self.world.cluster.requests)
        self.assertEqual(len(self.successResultOf(self.adaptor.list_spaces())), 30)
        self.assertEqual(len(self.world.cluster.requests) - before, 2)

    def test_wrong_cluster(self) -> None:
        """Without the ClusterProfile API, calls fail with 503, not with an empty list."""
        bare = ClusterProfiles(
            ProviderCluster(MemoryCluster(()).client(), 'provider "fleet"', "put others there"),
            Clock(),
        )
        calls: Sequence[Any] = (bare.list_spaces(), bare.list_names(), bare.get(RED))
        for call in calls:
            error = self.failureResultOf(call, ServiceUnavailable).value
            self.assertIn("has no clusterprofiles.multicluster.x-k8s.io", error.message)


class HintTests(ProfileCase):
    """Hints to watchers."""

    def setUp(self) -> None:
        super().setUp()
        self.world.put_profile("red", [token_provider("red", "s")])
        self.world.put_profile("blue", [token_provider("blue", "s")])
        self.world.put_secret("s", token="t")
        self.hints: list[Physical | None] = []
        self.adaptor.watch(self.hints.append)
        self.assertEqual(self.hints, [None])
        self.hints.clear()

    def test_secret(self) -> None:
        """A changed Secret gives a hint for every profile that refers to it."""
        self.world.put_secret("s", token="u")
        self.assertEqual(sorted(map(str, self.hints)), ["blue", "red"])

    def test_secret_no_more(self) -> None:
        """A profile that no longer refers to the Secret gets no hint."""
        self.world.put_profile("red")
        self.hints.clear()
        self.world.put_secret("s", token="u")
        self.assertEqual(self.hints, [Physical("blue")])

    def test_pushed(self) -> None:
        """Adding or removing a Secret's profile label gives a hint."""
        for labels in (FOR_RED, {}):
            self.hints.clear()
            self.world.put_secret("any", labels=labels, Config="x")
            self.assertEqual(self.hints, [RED])

    def test_new_namespace(self) -> None:
        """The first profile of a namespace starts a watch of its Secrets."""
        self.world.put_profile("red", [token_provider("red", "s")], "fleet-a")
        self.hints.clear()
        self.world.put_secret("s", "fleet-a", token="u")
        self.assertEqual(self.hints, [Physical("red", "fleet-a")])

    def test_others(self) -> None:
        """Unrelated Secrets and the manager's own profiles give no hint."""
        self.world.put_secret("other", token="u")
        self.world.put_profile("mine", manager=MANAGER)
        self.world.drop(SECRETS, "other", "default")
        self.assertEqual(self.hints, [])


class MakeTests(SynchronousTestCase):
    """Settings from a provider's Secret."""

    def make(self, secret: Mapping[str, bytes] | None) -> ISpaceProvider:
        spec = ProviderSpec("fleet", CLUSTERPROFILE, secret, "a/b" if secret else "")
        self.world = ProfileWorld()
        return clusterprofile.make(
            spec, ProviderContext(self.world.client(), Clock(), "/nowhere", lambda: 0.0)
        )

    def test_own_cluster(self) -> None:
        """Without a Secret the hub itself is used."""
        adaptor = self.make(None)
        self.world.put_profile("red")
        self.assertEqual(list(self.successResultOf(adaptor.list_names())), [RED])
        self.assertEqual(adaptor.default_parent, "default")

    def test_settings(self) -> None:
        """The Secret sets the namespace of profiles and allowed Secret namespaces."""
        adaptor = self.make({"namespace": b"fleet\n", "secret-namespaces": b"one, two"})
        self.assertEqual(adaptor.default_parent, "fleet")

    def test_wrong(self) -> None:
        """Invalid settings are refused with the Secret and the key."""
        for secret, problem in (
            ({"namespace": b"a,b"}, 'a/b, key "namespace": must be one namespace'),
            ({"namespace": b"A"}, 'a/b, key "namespace": must be a comma-separated list'),
            ({"secret-namespaces": b"../x"}, 'a/b, key "secret-namespaces"'),
            ({"config": b"x"}, 'a/b, key "kubeconfig": there is no such key'),
        ):
            with self.assertRaises(Invalid) as caught:
                self.make(secret)
            self.assertIn(problem, caught.exception.message)

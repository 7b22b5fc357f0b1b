"""Tests for :mod:`twisted_exec.spaces.lookup`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from tests.spaces.support import IMPORTED, SECRET, SPACE, Hub, kubeconfig
from twisted_exec.api import spaces
from twisted_exec.api.status import APIError, Conflict, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.spaces.kubeconfigs import config_in
from twisted_exec.spaces.lookup import FoundSpace, find_space, ready_view


class Limited:
    """A client of a user who may read only these namespaces."""

    def __init__(self, client: Any, *namespaces: str) -> None:
        self._client, self._namespaces = client, namespaces

    def get(self, resource: Any, name: str, namespace: str = "") -> Deferred[Any]:
        """As of :class:`IKubeClient`."""
        if namespace not in self._namespaces:
            return fail(Forbidden(f"spaces of {namespace} are not for you"))
        answer: Deferred[Any] = self._client.get(resource, name, namespace)
        return answer

    def list(self, resource: Any, **chosen: Any) -> Deferred[Any]:
        """As of :class:`IKubeClient`."""
        return fail(Forbidden("spaces of all namespaces are not for you"))


class FoundTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.hub = Hub()
        self.client: Any = self.hub.cluster.client()

    def find(self, *about: str, client: Any = None) -> FoundSpace:
        asked = Deferred.fromCoroutine(find_space(client or self.client, *about))
        return self.successResultOf(asked)

    def refused(self, wrong: type[APIError], *about: str, client: Any = None) -> str:
        asked = Deferred.fromCoroutine(find_space(client or self.client, *about))
        found = self.failureResultOf(asked).value
        self.assertEqual((type(found), found.code), (wrong, wrong.code), found)
        return str(found.message)


class FindTests(FoundTestCase):
    """Tests for :func:`find_space`."""

    def test_which(self) -> None:
        """
        A name alone means the default provider's Space, else the only Space of the name; a provider
        or namespace selects its own.
        """
        self.hub.space(provider="lab")
        self.assertEqual(str(self.find("one").name), "lab/one")
        self.hub.space()
        self.assertEqual(str(self.find("one").name), "default/one")
        self.assertEqual(str(self.find("one", "lab").name), "lab/one")
        self.hub.space(namespace="team", spec=IMPORTED)
        self.assertEqual(str(self.find("one", "team").name), "team/one")

    def test_several(self) -> None:
        """An ambiguous name is refused with the list of its providers."""
        for provider in ("lab", "shop"):
            self.hub.space(provider=provider)
        self.assertIn('of provider "lab", of provider "shop"', self.refused(Conflict, "one"))

    def test_none(self) -> None:
        """A missing Space, or one outside its provider's namespace, is not found."""
        self.assertEqual(self.refused(NotFound, "one"), 'there is no space "one"')
        self.hub.space(provider="lab", namespace="team")
        self.assertIn('of the provider "team"', self.refused(NotFound, "one", "team"))
        self.refused(NotFound, "one")

    def test_may_not(self) -> None:
        """
        A user who may read only one provider's namespace has to name that provider.
        """
        self.hub.space(provider="lab")
        limited = Limited(self.client, "spaceprovider-lab")
        self.assertEqual(str(self.find("one", "lab", client=limited).name), "lab/one")
        told = self.refused(Forbidden, "one", client=limited)
        self.assertIn("name the provider with --provider", told)
        self.refused(Forbidden, "one", "shop", client=limited)
        self.refused(NotFound, "two", "lab", client=limited)

    def test_may_only_read_imported(self) -> None:
        """The namespace of an imported Space is enough."""
        self.hub.space(namespace="team", spec=IMPORTED)
        limited = Limited(self.client, "team")
        self.assertEqual(str(self.find("one", "team", client=limited).name), "team/one")
        told = self.refused(Forbidden, "two", "team", client=limited)
        self.assertIn("spaces of spaceprovider-team are not for you", told)


class UsableTests(FoundTestCase):
    """Tests for :func:`ready_view` and :func:`config_in`."""

    def test_not_ready(self) -> None:
        """A Space that cannot be used is refused with the reason."""
        known: tuple[tuple[dict[str, Any], str], ...] = (
            ({"phase": spaces.NOT_READY}, "it is NotReady"),
            ({"deleting": True}, "it is being deleted"),
        )
        for more, why in known:
            space = self.hub.space(**more)
            with self.assertRaises(ServiceUnavailable) as caught:
                ready_view(space, spaces.EXTERNAL)
            self.assertEqual(
                caught.exception.message, f'space "default/one" cannot be reached: {why}'
            )
        self.assertTrue(ready_view(self.hub.space(), spaces.EXTERNAL).ready)

    def test_why_not_ready(self) -> None:
        """A condition that is False explains more than an Unknown one, which may follow from it."""
        unreachable = (spaces.PROVIDER_REACHABLE, "Unknown", "it was not asked yet")
        unknown = (spaces.PHYSICAL_SPACE_READY, "Unknown", "without access, readiness is unknown")
        starting = (spaces.PHYSICAL_SPACE_READY, "False", "it is being started")
        refused = (spaces.CREDENTIALS_VALID, "False", "the credentials are refused")
        valid = (spaces.CREDENTIALS_VALID, "True", "well")
        for conditions, why in (
            ((unknown, refused), "it is NotReady: the credentials are refused"),
            ((starting, refused), "it is NotReady: it is being started"),
            ((unreachable, unknown), "it is NotReady: it was not asked yet"),
            ((unknown, valid), "it is NotReady: without access, readiness is unknown"),
        ):
            space = self.hub.space(
                phase=spaces.NOT_READY,
                conditions=[
                    {"type": type, "status": status, "message": message}
                    for type, status, message in conditions
                ],
            )
            with self.assertRaises(ServiceUnavailable) as caught:
                ready_view(space, spaces.EXTERNAL)
            self.assertEqual(
                caught.exception.message, f'space "default/one" cannot be reached: {why}'
            )

    def config(self, viewpoint: str = spaces.EXTERNAL) -> Deferred[Any]:
        space = self.hub.cluster.objects[SPACE, "spaceprovider-default", "one"]
        return Deferred.fromCoroutine(config_in(self.client, space, viewpoint))

    def test_config(self) -> None:
        """Each call reads the Secret again; an unusable Secret is reported."""
        self.hub.both()
        self.assertEqual(self.successResultOf(self.config()).token, "t1")
        self.hub.secret(kubeconfig(token="t2"))
        self.assertEqual(self.successResultOf(self.config()).token, "t2")
        self.assertIn(
            "it has no in-cluster kubeconfig",
            self.failureResultOf(self.config(spaces.IN_CLUSTER)).value.message,
        )
        self.hub.secret(b"nonsense")
        problem = self.failureResultOf(self.config(), KubeConfigError).value
        self.assertTrue(str(problem).startswith('space "default/one": secret '), problem)
        del self.hub.cluster.objects[SECRET, "spaceprovider-default", "external-one"]
        self.assertEqual(
            self.failureResultOf(self.config()).value.message,
            'space "default/one": secret spaceprovider-default/external-one does not exist',
        )

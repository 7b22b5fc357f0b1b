"""Tests for :mod:`twisted_exec.kube.late_credentials`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.credentialed import CredentialedClient
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.status import APIError, BadGateway, ServiceUnavailable, from_code
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.late_credentials import LateCredentials
from twisted_exec.testing.cluster import MemoryCluster

OLD = ClientConfig("https://one.example", token="old", source="secret a/b")
NEW = replace(OLD, token="new")
RESOURCE = SECRETS.resource


class LateCredentialsTests(SynchronousTestCase):
    """Tests for :class:`LateCredentials`, with a server that accepts one token."""

    def setUp(self) -> None:
        self.cluster = MemoryCluster()
        self.config: ClientConfig | None = OLD
        self.taken = "old"
        self.refusal = from_code(401, "Unauthorized")
        self.rereads: list[ClientConfig] = []
        self.reread: Callable[[], Deferred[bool]] = lambda: succeed(False)
        self.moves = 0
        self.client = self.make()

    def make(self, **more: Any) -> IKubeClient:
        def moved() -> None:
            self.moves += 1

        credentials = LateCredentials('space "x"', self.current, moved=moved, **more)
        return CredentialedClient(credentials, self.client_of)  # type: ignore[return-value]

    def current(self) -> ClientConfig:
        if self.config is None:
            raise ServiceUnavailable("there is none yet")
        return self.config

    def client_of(self, config: ClientConfig) -> IKubeClient:
        self.cluster.problem = None if config.token == self.taken else self.refusal
        client: IKubeClient = self.cluster.client()
        return client

    def again(self, config: ClientConfig) -> Deferred[bool]:
        self.rereads.append(config)
        return self.reread()

    def other(self) -> Deferred[bool]:
        self.config = NEW
        return succeed(True)

    def secrets(self, client: IKubeClient) -> Deferred[Object]:
        return client.list(RESOURCE, "a")

    def refused(self, asking: Deferred[Any]) -> APIError:
        problem: APIError = self.failureResultOf(asking, APIError).value
        return problem

    def test_not_yet(self) -> None:
        """Without credentials, requests fail with the reason, and no server gets a request."""
        self.config = None
        self.assertEqual(self.refused(self.secrets(self.client)).message, "there is none yet")
        self.assertEqual(self.cluster.requests, [])
        self.config = OLD
        self.successResultOf(self.secrets(self.client))

    def test_new_credentials(self) -> None:
        """New credentials apply to the next request; a new server calls ``moved`` once."""
        self.successResultOf(self.secrets(self.client))
        self.config, self.taken = NEW, "new"
        self.successResultOf(self.secrets(self.client))
        self.assertEqual(self.moves, 0)
        self.config = replace(NEW, server="https://two.example")
        self.successResultOf(self.secrets(self.client))
        self.assertEqual(self.moves, 1)

    def test_once_again(self) -> None:
        """After a 401 the request is sent once more if re-reading finds new credentials."""
        self.taken, self.reread = "new", self.other
        client = self.make(reread=self.again)
        self.successResultOf(self.secrets(client))
        self.assertEqual(self.rereads, [OLD])
        made = client.create(RESOURCE, {"metadata": {"name": "s"}}, "a")
        self.assertEqual(self.successResultOf(made)["metadata"]["name"], "s")

    def test_once_only(self) -> None:
        """There is no third attempt; the error names the credentials of the last one."""
        self.taken = "newest"
        self.reread = self.other
        told = self.refused(self.secrets(self.make(reread=self.again)))
        self.assertEqual((len(self.rereads), len(self.cluster.requests)), (1, 2))
        self.assertEqual(
            told.message,
            'space "x" rejects the credentials (secret a/b): Unauthorized; '
            "replace the credentials there",
        )
        self.assertEqual(told.code, 401)

    def test_nothing_else(self) -> None:
        """If re-reading finds nothing or fails, the server's 401 reaches the caller."""
        self.taken = "new"
        for answer in (lambda: succeed(False), lambda: fail(BadGateway("no hub"))):
            self.reread = answer
            told = self.refused(self.secrets(self.make(reread=self.again)))
            self.assertIn("rejects the credentials", told.message)
        self.assertEqual(len(self.cluster.requests), 2)

    def test_not_let(self) -> None:
        """A 403 reaches the caller at once, without reading the credentials again."""
        client = self.make(reread=self.again)
        self.successResultOf(self.secrets(client))
        self.refusal, self.taken = from_code(403, "no"), "new"
        told = self.refused(self.secrets(client))
        self.assertIn("denies the request (secret a/b): no; grant the right", told.message)
        self.assertEqual(self.rereads, [])

    def test_a_watch(self) -> None:
        """A watch refused with 401 is retried; an open watch that ends with 401 is not."""
        self.taken, self.reread = "new", self.other
        client = self.make(reread=self.again)
        seen: list[str] = []
        opened: list[int] = []
        watching = client.watch(
            RESOURCE,
            lambda kind, _: seen.append(kind),
            resource_version="1",
            on_open=lambda: opened.append(1),
        )
        self.assertEqual((len(self.rereads), opened), (1, [1]))
        self.cluster.put((RESOURCE, "a", "s"), {"metadata": {"name": "s", "namespace": "a"}})
        self.assertEqual(seen, ["ADDED"])
        self.cluster.end_watches(from_code(401, "Unauthorized"))
        self.refused(watching)
        self.assertEqual(len(self.rereads), 1)

    def test_given_up(self) -> None:
        """Cancelling during the re-read ends the request; no second one is sent."""
        self.taken = "new"
        looking: Deferred[bool] = Deferred()
        self.reread = lambda: looking
        asking = self.secrets(self.make(reread=self.again))
        self.assertNoResult(asking)
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        self.assertEqual(len(self.cluster.requests), 1)

"""Tests for :mod:`twisted_exec.kube.upstream`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
)
from twisted_exec.kube.upstream import ServerUpstream
from twisted_exec.streaming.location import Location, Renewal
from twisted_exec.tls.deadlines import LONGEST_SECONDS
from twisted_exec.wire.channel import Channel

PATH = "/api/v1/namespaces/ns/pods/p/exec"


class UpstreamTests(SynchronousTestCase):
    """Tests for :class:`ServerUpstream`."""

    def setUp(self) -> None:
        self.config = ClientConfig("https://127.0.0.1:1/clusters/c/", token="first")

    def to(self, **more: Any) -> Location:
        upstream = ServerUpstream(lambda: self.config, "the leaf", reactor, PATH, **more)
        location: Location = self.successResultOf(Deferred.fromCoroutine(upstream.locate()))
        return location

    def test_location(self) -> None:
        """
        A location has the server's base path, our credentials and the kubeconfig's impersonation.
        """
        self.config = replace(self.config, impersonate=ImpersonatedUser("ann"))
        location = self.to(query=b"command=sh&command=-c")
        self.assertEqual(location.path, b"/clusters/c" + PATH.encode() + b"?command=sh&command=-c")
        self.assertEqual(
            list(location.headers),
            [(b"Authorization", b"Bearer first"), (b"Impersonate-User", b"ann")],
        )
        self.assertEqual(location.host, b"127.0.0.1:1")
        self.assertEqual([label for label, _ in location.endpoints], ["the leaf"])

    def test_without_a_query(self) -> None:
        """Without a query the path has no question mark."""
        self.assertEqual(self.to().path, b"/clusters/c" + PATH.encode())

    def test_acting(self) -> None:
        """``impersonate`` overrides the kubeconfig's impersonation."""
        self.config = replace(self.config, impersonate=ImpersonatedUser("ann"))
        self.assertIn(
            (b"Impersonate-User", b"bob"), self.to(impersonate=ImpersonatedUser("bob")).headers
        )
        self.assertEqual(len(self.to(impersonate=ImpersonatedUser()).headers), 1)

    def test_renewed(self) -> None:
        """The location of a request about an open stream has the renewed credentials."""
        location = self.to(streams={Channel.STDIN}, query=b"x=1")
        self.config = replace(self.config, token="second")
        later = self.successResultOf(
            Deferred.fromCoroutine(location.upstream.renew(location, Renewal.CONTROL))
        )
        self.assertEqual(list(later.headers), [(b"Authorization", b"Bearer second")])
        self.assertEqual((later.path, later.streams), (location.path, {Channel.STDIN}))

    def test_slow_server(self) -> None:
        """A connection has no limit of its own that a slow server would meet: its user has one."""
        clock = MemoryReactorClock()
        upstream = ServerUpstream(lambda: self.config, "the leaf", clock, PATH)
        location = self.successResultOf(Deferred.fromCoroutine(upstream.locate()))
        connecting = location.endpoints[0][1].connect(Factory.forProtocol(Protocol))
        clock.advance(LONGEST_SECONDS - 1)
        self.assertNoResult(connecting)
        clock.advance(1)
        self.failureResultOf(connecting)

    def test_no_credentials(self) -> None:
        """Unreadable credentials fail at once, before connecting."""
        self.config = replace(self.config, token="", token_file="/nonexistent/token")
        upstream = ServerUpstream(lambda: self.config, "the leaf", reactor, PATH)
        going = Deferred.fromCoroutine(upstream.locate())
        self.failureResultOf(going, KubeConfigError)

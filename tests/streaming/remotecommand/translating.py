"""A user, a proxy that translates, and a next hop, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.audits import AuditList
from tests.streaming.foreign import Foreign
from tests.streaming.passing import carry
from twisted_exec.api.status import APIError
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.location import IStreamAdmission, Location, Renewal, Upstream
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.console import RecordingAttachment, RecordingUser
from twisted_exec.testing.network import MemoryNetwork
from twisted_exec.wire.channel import TERMINAL, V5


@implementer(IStreamAdmission)
class Admission(Upstream):
    """
    Leads to one place, whose path is good for one request.

    :ivar control: where requests about open sessions go, if not there.
    """

    def __init__(self, endpoint: Any, tokens: set[bytes]) -> None:
        super().__init__()
        self.endpoint, self.tokens = endpoint, tokens
        self.located = 0
        self.streams: Any = TERMINAL
        self.problem: APIError | None = None
        self.control: Any = None

    def admit(self, context: RequestContext) -> Deferred[Location]:
        context.learn(session="s-1", user="ann", machine="vm")
        return self._to()

    def _to(self) -> Deferred[Location]:
        if self.problem is not None and self.located:
            return fail(self.problem)
        self.located += 1
        path = b"/exec/%d" % self.located
        self.tokens.add(path)
        location = Location(
            [("the runtime", self.endpoint)],
            path,
            b"runtime",
            [(b"X-Ours", b"yes")],
            streams=self.streams,
            upstream=self,
        )
        return succeed(location)

    async def renew(self, location: Location, reason: Renewal) -> Location:
        if reason is not Renewal.CONTROL:
            return await self._to()
        if self.control is None:
            return location
        return replace(location, endpoints=[("the runtime", self.control)])


class Proxying(Dispatcher):
    """:ivar request: the latest."""

    request: Any

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self.proxy = proxy

    async def dispatch(self, request: Request) -> None:
        self.request = request
        await carry(self.proxy, request)


class TranslateTestCase(SynchronousTestCase):
    """A user, a proxy, and a next hop that may not speak what the user does."""

    protocols: Sequence[str] = (V5,)

    def setUp(self) -> None:
        self.start()

    def start(self, **more: Any) -> None:
        self.clock, self.network = Clock(), MemoryNetwork()
        self.records = AuditList()
        self.foreign = Foreign(self.clock, **more)
        self.sessions = Sessions(Trail(self.records, "poollet", self.clock))
        endpoint = self.network.endpoint(Site(self.foreign, self.clock))
        self.admission = Admission(endpoint, self.foreign.tokens)
        self.proxy = Proxy(
            self.admission, ProxySettings("poollet"), sessions=self.sessions, clock=self.clock
        )
        self.proxying = Proxying(self.proxy)
        self.entry = self.network.endpoint(Site(self.proxying, self.clock))
        self.user = RecordingUser()

    def ask(self, path: bytes = b"/machines/vm/exec") -> Deferred[ConsoleClient]:
        head = UpgradeRequest(b"GET", path, b"localhost", [(b"Authorization", b"Bearer secret")])
        opening = connect(
            self.entry,
            head,
            self.user,
            clock=self.clock,
            timeout_seconds=60,
            protocols=self.protocols,
        )
        self.network.pump()
        return opening

    def open(self, **more: Any) -> ConsoleClient:
        return self.successResultOf(self.ask(**more))

    def refused(self) -> APIError:
        error = self.failureResultOf(self.ask(), APIError).value
        assert isinstance(error, APIError)
        self.records.check_pairs()
        self.assertEqual(self.records.ends()[0][1], error.code)
        self.assertEqual(len(self.sessions), 0)
        self.assertTrue(all(each.lost for each in self.network.transports))
        return error

    @property
    def attachment(self) -> RecordingAttachment:
        return self.foreign.attachments[-1]

    def over(self, reason: str) -> dict[str, Any]:
        """Check that the session ended once, and that no connection or timer is left."""
        self.network.pump()
        self.records.check_pairs()
        self.assertEqual(self.records.ends(), [(reason, None)])
        self.assertEqual(len(self.user.detached_with), 1)
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return self.records[-1]

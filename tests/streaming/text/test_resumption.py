"""
Tests for :mod:`twisted_exec.streaming.text.resumption`, through a relay.
"""

from __future__ import annotations

import gc
import itertools
from typing import Any
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from tests.streaming.text.test_download import CHUNKED, chunk
from tests.streaming.text.test_relay import RelayCase
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.session_metrics import SessionMetrics
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import MACHINE_DELETED, REVOKED, SHUTTING_DOWN, Ending
from twisted_exec.streaming.location import Location
from twisted_exec.streaming.text.resumption import ResumedLog
from twisted_exec.testing.network import MemoryClient
from twisted_exec.wire.log_frames import MID_LINE, FrameDecoder, Framing, LogFrame

EPOCH = "0123456789abcdef"
SECOND = 10**9


class ResumedCase(RelayCase):
    """A relay that continues logs, and backends that send frames."""

    resumes = True

    def setUp(self) -> None:
        super().setUp()
        self.registry = new_registry(process=False)
        self.sessions.metrics = SessionMetrics(self.registry)
        self.admission.path = b"/log/T"
        self.select(follow=True)

    def select(self, **options: Any) -> None:
        self.admission.more = {"log": LogOptions(**options)}

    def begin(self, framing: Framing | None = None) -> None:
        """The backend's head."""
        name, value = (framing or Framing(EPOCH, 0)).header()
        self.answer(CHUNKED.replace(b"\r\n\r\n", b"\r\n%b: %b\r\n\r\n" % (name, value)))

    def frame(self, text: bytes, offset: int, state: int = 0) -> bytes:
        return chunk(LogFrame(text, offset, 1000 * SECOND, state).encode())

    def lose(self) -> None:
        self.backend.protocol.connectionLost(Failure(ConnectionLost()))

    def next_backend(self, connected: bool = True) -> None:
        """The backend of the next attempt."""
        self.admission.endpoints.clear()
        self.backend = self.add_backend(connected)

    def outages(self) -> tuple[float | None, float | None]:
        """Return the counted outages: those that the log continued after, and those that ended it."""
        name, value = "twisted_exec_log_outages_total", self.registry.get_sample_value
        return value(name, {"result": "continued"}), value(name, {"result": "ended"})

    def query(self) -> dict[str, str]:
        """The query of the backend's request."""
        _, target, _ = self.backend.transport.value().split(b" ", 2)
        path, _, query = target.decode().partition("?")
        self.assertEqual(path, "/log/T")
        return {name: value for name, (value,) in parse_qs(query).items()}

    def following(self) -> MemoryClient:
        """A client with one line, whose backend has sent its frame."""
        client = self.ask()
        self.begin()
        self.answer(self.frame(b"one\n", 4))
        self.assertTrue(client.received().endswith(b"\r\n\r\n4\r\none\n\r\n"))
        return client

    def resumed(self) -> MemoryClient:
        """The same, after the backend was lost; the next one has its request."""
        client = self.following()
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        return client


class ContinueTests(ResumedCase):
    """Backends that are lost and come back."""

    def test_continues(self) -> None:
        """The log goes on at its offset; audit has one start and one end."""
        client = self.resumed()
        self.assertEqual(
            self.query(),
            {"follow": "true", "frames": "true", "fromOffset": "4", "epoch": EPOCH, "state": "0"},
        )
        self.begin(Framing(EPOCH, 4))
        self.answer(self.frame(b"two\n", 8) + b"0\r\n\r\n")
        self.assertEqual(client.received(), b"4\r\ntwo\n\r\n0\r\n\r\n")
        end = self.end()
        self.assertEqual((end["reason"], end["bytes_to_user"]), ("backend closed", 8))
        self.assertEqual(self.outages(), (1, 0))
        client.lose()
        self.assertEqual(self.timed(), [])

    def test_partial_frame(self) -> None:
        """Part of a frame is not passed on, so it is not repeated."""
        client = self.following()
        self.answer(chunk(LogFrame(b"two\n", 8, 0).encode()[:-1]))
        self.assertEqual(client.received(), b"")
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        self.assertEqual(self.query()["fromOffset"], "4")

    def test_state(self) -> None:
        """The state of the last frame goes back to the runtime, with the format of the log."""
        self.select(
            follow=True,
            timestamps=True,
            plain=True,
            tail_lines=3,
            since_seconds=9,
        )
        self.ask()
        self.begin()
        self.answer(self.frame(b"o", 1, MID_LINE))
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        query = self.query()
        self.assertEqual((query["state"], query["fromOffset"]), ("1", "1"))
        options = [query[name] for name in ("timestamps", "plain")]
        self.assertEqual(options, ["true"] * 2)
        self.assertNotIn("tailLines", query)
        self.assertNotIn("sinceSeconds", query)

    def test_nothing_printed_yet(self) -> None:
        """A silent log continues where it began: what is printed during the outage is not lost."""
        self.select(follow=True, tail_lines=0)
        self.ask()
        self.begin(Framing(EPOCH, 700))
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        self.assertEqual(self.query()["fromOffset"], "700")

    def test_not_followed(self) -> None:
        """A log that is not followed continues to the end that it had at first."""
        self.select(boot=-1)
        self.ask()
        self.begin(Framing(EPOCH, 0, 9))
        self.answer(self.frame(b"one\n", 4))
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        query = self.query()
        self.assertEqual((query["fromOffset"], query["toOffset"]), ("4", "9"))
        self.assertNotIn("boot", query)
        self.assertNotIn("follow", query)

    def test_limit(self) -> None:
        """Bytes that the user has count towards the limit; at the limit the log is complete."""
        self.select(follow=True, limit_bytes=6)
        client = self.resumed()
        self.assertEqual(self.query()["limitBytes"], "2")
        self.begin()
        self.answer(self.frame(b"tw", 8))
        self.lose()
        self.assertEqual(client.received(), b"2\r\ntw\r\n0\r\n\r\n")
        client.lose()
        self.assertEqual(self.timed(), [])

    def test_other_epoch(self) -> None:
        """A journal that began anew is continued by its own offsets afterwards."""
        self.resumed()
        other = "f" * 16
        self.begin(Framing(other, 0))
        self.lose()
        self.next_backend()
        self.clock.advance(0.2)
        self.assertEqual((self.query()["epoch"], self.query()["fromOffset"]), (other, "0"))

    def test_paused(self) -> None:
        """A client that does not read gets no more from the next backend either."""
        client = self.following()
        client.transport.producer.pauseProducing()
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        self.begin()
        self.assertEqual(self.backend.transport.producerState, "paused")
        client.transport.producer.resumeProducing()
        self.assertEqual(self.backend.transport.producerState, "producing")

    def test_nothing_is_left(self) -> None:
        """A log that ended leaves no reference cycle behind, also during an outage."""

        def refused() -> None:
            self.admission.problem = ServiceUnavailable("vm is not running yet")
            self.lose()
            self.clock.pump([0.1] * 5)
            self.admission.problem = None  # its traceback has the log

        for meanwhile in (lambda: None, self.lose, refused):
            self.setUp()
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            client = self.following()
            meanwhile()
            client.lose()
            self.backend.protocol = None
            left = [
                each
                for each in gc.get_objects(generation=0)
                if isinstance(each, ResumedLog | FrameDecoder)
            ]
            self.assertEqual(left, [])

    def test_websocket(self) -> None:
        """The log of a page in a browser continues, too."""
        client = self.ask(
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            b"Sec-WebSocket-Protocol: binary.k8s.io",
        )
        self.begin()
        self.answer(self.frame(b"one\n", 4))
        told = client.received()
        self.assertIn(b"101 Switching", told)
        self.assertTrue(told.endswith(b"\x82\x04one\n"))
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        self.begin()
        self.answer(self.frame(b"two\n", 8))
        self.assertEqual(client.received(), b"\x82\x04two\n")

    def test_nonsense(self) -> None:
        """A backend that sends no frames is one that is lost."""
        self.following()
        first = self.backend
        self.answer(chunk(b"\xff" * 24))
        self.assertTrue(first.transport.aborted)
        self.next_backend()
        self.clock.advance(0.1)
        self.assertEqual(self.query()["fromOffset"], "4")

    def test_without_frames(self) -> None:
        """The log of a backend that knows no frames passes as it is, and ends with it."""
        client = self.ask()
        self.assertEqual(self.query(), {"follow": "true", "frames": "true"})
        self.answer(CHUNKED + chunk(b"one\n"))
        self.assertIn(b"one\n", client.received())
        self.lose()
        self.assertTrue(client.closed)
        self.assertEqual(self.timed(), [])


class OutageTests(ResumedCase):
    """Backends that stay away."""

    def wait(self, seconds: float) -> None:
        self.clock.pump([0.05] * int(seconds * 20))

    def test_retries(self) -> None:
        """Refusals are retried, ever less often, and for a minute."""
        client = self.following()
        self.lose()
        self.admission.problem = ServiceUnavailable("vm is not running yet")
        located: list[float] = []
        admit = self.admission.admit

        def noted(context: RequestContext) -> Deferred[Location]:
            located.append(self.clock.seconds())
            return admit(context)

        self.admission.admit = noted  # type: ignore[method-assign]
        self.wait(59)
        self.assertEqual(client.received(), b"")
        self.assertLess(located[0], 0.2)
        waits = [later - earlier for earlier, later in itertools.pairwise(located)]
        self.assertLess(max(waits), 1.1)
        self.assertGreater(min(waits[14:]), 0.49)
        self.wait(3)
        told = client.received()
        self.assertIn(
            b"[twisted-exec: LineLost: 10.0.0.0:1 was lost: no connection within 60 s: ", told
        )
        self.assertIn(b"vm is not running yet", told)
        self.assertIn(b"continue with --since-time=1970-01-01T00:16:40.000000000Z]", told)
        self.assertTrue(client.closed)
        self.assertEqual(self.end()["reason"], "backend lost")
        self.assertEqual(self.outages(), (0, 1))
        self.assertEqual(self.timed(), [])

    def test_comes_back(self) -> None:
        """A machine that is created again meanwhile ends the outage."""
        client = self.following()
        self.lose()
        self.admission.problem = NotFound("machines", "vm")
        self.wait(30)
        self.admission.problem = None
        self.next_backend()
        self.wait(1)
        self.begin()
        self.answer(self.frame(b"two\n", 8))
        self.assertEqual(client.received(), b"4\r\ntwo\n\r\n")

    def test_withdrawn(self) -> None:
        """A user who may not read the log any more is told so at once."""
        client = self.following()
        self.admission.problem = Forbidden("ann may not")
        self.lose()
        self.wait(0.2)
        self.assertIn(b"[twisted-exec: AuthorizationWithdrawn: ann may not]", client.received())
        self.assertEqual(self.end()["reason"], REVOKED)
        self.assertEqual(self.timed(), [])

    def test_starting_server(self) -> None:
        """A 403 without causes may come from an API server that is starting: it is final after some seconds."""
        client = self.following()
        self.admission.problem = APIError("forbidden", code=403, reason="Forbidden")
        self.lose()
        self.wait(9)
        self.assertEqual(client.received(), b"")
        self.admission.problem = None
        self.next_backend()
        self.wait(1)
        self.begin()
        self.answer(self.frame(b"two\n", 8))
        self.assertEqual(client.received(), b"4\r\ntwo\n\r\n")
        self.admission.problem = APIError("forbidden", code=403, reason="Forbidden")
        self.lose()
        self.wait(12)
        self.assertIn(b"[twisted-exec: AuthorizationWithdrawn: forbidden]", client.received())

    def test_refused_by_backend(self) -> None:
        """A refusal that waiting does not change is final."""
        client = self.resumed()
        self.answer(b"HTTP/1.1 400 X\r\nContent-Length: 10\r\n\r\nbeyond it!")
        told = client.received()
        self.assertIn(b"LineLost", told)
        self.assertIn(b"beyond it!; continue with --since-time=", told)
        self.assertEqual(self.timed(), [])

    def test_other_machine(self) -> None:
        """Another machine of the same name does not continue the log."""
        client = self.following()
        self.lose()
        self.next_backend()
        admit = self.admission.admit

        def other(context: RequestContext) -> Deferred[Location]:
            location = admit(context)
            context.learn(uid="another")
            return location

        self.admission.admit = other  # type: ignore[method-assign]
        self.wait(2)
        self.assertIsNone(self.backend.protocol)
        client.lose()

    def test_ended_meanwhile(self) -> None:
        """The guard works during an outage; nothing is tried afterwards."""
        client = self.following()
        self.lose()
        self.sessions.end(lambda _: True, Ending(REVOKED, "ann may not"))
        self.assertIn(b"[twisted-exec: AuthorizationWithdrawn: ann may not]", client.received())
        self.assertEqual(self.end()["reason"], REVOKED)
        self.assertEqual(self.timed(), [])

    def test_deleted_meanwhile(self) -> None:
        """A machine that is deleted during an outage ends the log as complete."""
        client = self.following()
        self.lose()
        self.sessions.end(lambda _: True, Ending(MACHINE_DELETED, "it was deleted"))
        self.assertEqual(client.received(), b"0\r\n\r\n")
        self.assertEqual(self.end()["reason"], MACHINE_DELETED)
        client.lose()
        self.assertEqual(self.timed(), [])

    def test_client_leaves(self) -> None:
        """A client that leaves during an outage ends it."""
        client = self.following()
        self.lose()
        client.lose()
        self.assertEqual(self.end()["reason"], "client closed")
        self.assertEqual(self.timed(), [])

    def test_client_leaves_while_connecting(self) -> None:
        """An attempt that is under way ends with the client."""
        client = self.following()
        self.lose()
        self.next_backend(connected=False)
        self.clock.advance(0.1)
        client.lose()
        self.assertEqual(self.timed(), [])

    def test_bug(self) -> None:
        """An unexpected error ends the log instead of leaving it open for ever."""
        client = self.following()
        self.admission.problem = ZeroDivisionError("oops")
        self.lose()
        self.wait(0.2)
        self.assertIn(b"[twisted-exec: InternalError: internal error]", client.received())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.timed(), [])

    def test_flapping(self) -> None:
        """A backend that accepts and is lost again, without output, counts as one outage."""
        client = self.following()
        self.lose()
        for _ in range(80):
            self.next_backend()
            self.wait(1.2)
            if client.closed:
                break
            self.begin()
            self.lose()
        self.assertTrue(client.closed)
        self.assertLess(self.clock.seconds(), 70)

    def test_drain(self) -> None:
        """A server that stops names the time to continue from."""
        client = self.following()
        self.sessions.drain(self.clock, 3, "exec-poollet")
        self.assertIn(b"; continue with --since-time=1970", client.received())


class FramedTests(ResumedCase):
    """Users who want frames themselves."""

    def setUp(self) -> None:
        super().setUp()
        self.select(follow=True, frames=True)

    def framed(self) -> MemoryClient:
        client = self.ask()
        self.begin(Framing(EPOCH, 2))
        self.assertIn(b"frames; epoch=0123456789abcdef; start=2\r\n", client.received())
        return client

    def test_frames(self) -> None:
        """Frames are passed on across an outage."""
        client = self.framed()
        self.answer(self.frame(b"one\n", 4, MID_LINE))
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        self.begin(Framing(EPOCH, 4))
        self.answer(self.frame(b"two\n", 8))
        body = b"".join(part[:28] for part in client.received().split(b"1c\r\n")[1:])
        self.assertEqual(
            FrameDecoder().feed(body),
            [(b"one\n", 4, 1000 * SECOND, MID_LINE), (b"two\n", 8, 1000 * SECOND, 0)],
        )

    def test_no_mark(self) -> None:
        """A framed log is cut without a line between the frames."""
        client = self.framed()
        self.sessions.end(lambda _: True, Ending(REVOKED, "ann may not"))
        self.assertEqual(client.received(), b"")
        self.assertTrue(client.closed)

    def test_other_epoch(self) -> None:
        """A reader of frames learns a new epoch by asking again."""
        client = self.framed()
        self.lose()
        self.next_backend()
        self.clock.advance(0.1)
        self.begin(Framing("f" * 16, 0))
        self.assertTrue(client.closed)


class PassingTests(ResumedCase):
    """A hop between the API server and the runtime."""

    resumes = False

    def test_frames(self) -> None:
        """It passes header and frames on, and nothing when the runtime is lost."""
        self.select(follow=True, frames=True)
        client = self.ask()
        self.begin()
        self.answer(self.frame(b"one\n", 4))
        told = client.received()
        self.assertIn(b"Console-Log: frames; epoch=0123456789abcdef; start=0\r\n", told)
        self.assertTrue(told.endswith(b"one\n\r\n"))
        self.sessions.end(lambda _: True, Ending(SHUTTING_DOWN, "stopping"))
        self.assertEqual(client.received(), b"")
        self.assertTrue(client.closed)

    def test_unframed(self) -> None:
        """Without the option it asks for none, and a header that comes unasked is dropped."""
        client = self.ask()
        self.assertEqual(self.query(), {"follow": "true"})
        self.begin()
        self.assertNotIn(b"Console-Log", client.received())

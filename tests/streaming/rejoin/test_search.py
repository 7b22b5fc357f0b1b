"""Tests for :mod:`twisted_exec.streaming.rejoin.search`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.streaming.rejoin.search import Rejoiner
from twisted_exec.wire.endings import INTERNAL, decode_status
from twisted_exec.wire.rejoin import REJOIN_HEADER, Rejoin, Rejoinable, parse_rejoin, received_text

from .support import Chain, Peer


class RejoinerTests(SynchronousTestCase):
    """Attempts to rejoin a stream."""

    def setUp(self) -> None:
        self.chain = Chain()
        self.chain.network.pump()
        self.requests: list[str] = []
        self.patience: list[int] = []
        self.answers: list[Callable[[Rejoin], Any]] = []
        self.rejoiner = Rejoiner(self.chain.clock, Rejoinable("k" * 43, 30), self.reach)
        self.chain.lost = lambda: self.rejoiner.start(self.chain.splice)  # type: ignore[method-assign]
        self.chain.splice._on_loss = self.chain.lost

    async def reach(self, header: str, patience: int) -> Any:
        self.requests.append(header)
        self.patience.append(patience)
        request = parse_rejoin(header)
        assert request is not None
        answer = self.answers.pop(0) if self.answers else refuse(502)
        return answer(request)

    def accept(self, request: Rejoin) -> Any:
        """As the machine's end does."""
        self.chain.stream.check(request.received)
        received = self.chain.stream.received
        far = self.chain.stream.rejoin(request.received)
        return Connected(self.chain, far, received_text(received))

    def status(self) -> str:
        text = self.chain.user.got.decode("latin-1")
        return text[text.index("{") : text.rindex("}") + 1]

    def test_at_once(self) -> None:
        self.answers = [self.accept]
        self.chain.user.transport.write(b"keys")
        self.chain.cut()
        self.chain.network.pump()
        self.assertEqual(self.chain.machine.got, b"keys")
        self.assertEqual(self.requests, [Rejoin("k" * 43, 0).text()])

    def test_later(self) -> None:
        """A hop that is not there yet is tried again, less and less often."""
        self.answers = [refuse(502), refuse(504), refuse(503), refuse(401), self.accept]
        self.chain.cut()
        for seconds in (0.1, 0.2, 0.4, 0.8):
            self.assertFalse(self.chain.splice.has_machine)
            self.chain.clock.advance(seconds)
        self.assertEqual(len(self.requests), 5)
        self.assertEqual(self.patience, [1, 1, 2, 2, 2])  # a hop that was too slow gets more time
        self.assertTrue(self.chain.splice.has_machine)
        self.assertEqual(self.chain.clock.getDelayedCalls(), [])

    def test_refused(self) -> None:
        """A refusal that will not change ends the session with its message."""
        self.answers = [refuse(404)]
        self.chain.cut()
        self.chain.network.pump()
        self.assertIn("no such stream; open the console again", self.status())
        self.assertEqual(self.chain.ends, [INTERNAL])

    def test_causes(self) -> None:
        """The ending has the obstacles of the refusal among its causes."""

        def lost(_: Rejoin) -> None:
            raise because(Obstacle.NOT_IN_POOL, NotFound("machines", "vm"))

        self.answers = [lost]
        self.chain.cut()
        self.chain.network.pump()
        self.assertEqual(decode_status(self.status().encode()).causes, ("NotInPool",))

    def test_time_over(self) -> None:
        self.chain.cut()
        for _ in range(60):
            self.chain.clock.advance(0.5)
        self.chain.network.pump()
        self.assertIn("no such stream", self.status())
        self.assertLess(len(self.requests), 40)

    def test_other_answer(self) -> None:
        """A hop that does not know the header cannot continue the stream."""
        connected = Connected(self.chain, Peer(), "")
        self.answers = [lambda _: connected]
        self.chain.cut()
        self.chain.network.pump()
        self.assertTrue(connected.aborted)
        self.assertIn("status; open the console again", self.status())
        self.assertEqual(self.chain.ends, [INTERNAL])

    def test_too_little_kept(self) -> None:
        connected = Connected(self.chain, Peer(), received_text(5))
        self.answers = [lambda _: connected]
        self.chain.cut()
        self.assertTrue(connected.aborted)

    def test_cancelled(self) -> None:
        self.chain.cut()
        self.rejoiner.cancel()
        self.assertEqual(len(self.requests), 1)
        self.assertNotIn(True, [each.active() for each in self.chain.clock.getDelayedCalls()][1:])


class Connected:
    """A connection after its 101."""

    aborted = False

    def __init__(self, chain: Chain, far: Any, text: str) -> None:
        self.chain, self.far = chain, far
        self.headers = [(REJOIN_HEADER.encode(), text.encode())] if text else []

    def hand_over(self, near: Any) -> None:
        self.chain.middle = self.chain.join(near, self.far)

    def abort(self) -> None:
        self.aborted = True


def refuse(code: int) -> Callable[[Rejoin], Any]:
    """An answer that refuses."""

    def answer(request: Rejoin) -> Any:
        raise APIError("no such stream", code=code, reason="")

    return answer

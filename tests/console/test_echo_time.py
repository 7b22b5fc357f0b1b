"""
Tests for :mod:`twisted_exec.console.echo_time`, in a console.
"""

from __future__ import annotations

import gc
from weakref import ref

from zope.interface import implementer

from twisted_exec.console.echo_time import LONGEST_SECONDS
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.streaming.interfaces import LINE_LOST, Ending, IEchoTransport, Role
from twisted_exec.wire.stream_options import CONSOLE

from .doubles import MemoryStream, SharedConsoleCase


@implementer(IEchoTransport)
class TimedStream(MemoryStream):
    """A stream that records echo times."""

    def echoed(self, seconds: float) -> None:
        vars(self).setdefault("times", []).append(seconds)

    @property
    def echoes(self) -> list[float]:
        """The recorded times since the last call."""
        return vars(self).pop("times", [])


class EchoTests(SharedConsoleCase):
    """Input, and the output that follows it."""

    def setUp(self) -> None:
        super().setUp()
        self.ann = TimedStream(self.shared.viewer(), user="ann")
        self.bob = TimedStream(self.shared.viewer(), user="bob")

    def types(self, seconds: float = 0.0, stream: TimedStream | None = None) -> None:
        """A key reaches the line; then time goes by."""
        (stream or self.ann).viewer.data_received(b"x")
        self.clock.advance(seconds)

    def test_first_output(self) -> None:
        """The time ends with the first output; more output is no echo."""
        self.console.says(b"=> ")
        self.types(0.25)
        self.console.says(b"x")
        self.clock.advance(1)
        self.console.says(b"more")
        self.assertEqual(self.ann.echoes, [0.25])
        self.assertEqual(self.bob.echoes, [])

    def test_faster_than_the_machine(self) -> None:
        """Of keys that are typed before the machine answers, the first one counts."""
        self.types(0.5)
        self.types(0.25)
        self.console.says(b"xx")
        self.assertEqual(self.ann.echoes, [0.75])

    def test_fast_typist(self) -> None:
        """One echo a second is measured."""
        for _ in range(8):
            self.types(0.125)
            self.console.says(b"x")
            self.clock.advance(0.125)
        self.assertEqual(self.ann.echoes, [0.125, 0.125])

    def test_no_echo(self) -> None:
        """Without output in time there is no echo, and the next key begins anew."""
        self.types(LONGEST_SECONDS + 0.5)
        self.console.says(b"Login incorrect")
        self.assertEqual(self.ann.echoes, [])
        self.types(LONGEST_SECONDS + 0.5)
        self.types(0.125)
        self.console.says(b"x")
        self.assertEqual(self.ann.echoes, [0.125])

    def test_another_user(self) -> None:
        """The echo belongs to the session that typed."""
        self.ann.drop()
        self.bob.viewer.wished(Role.WRITER)
        self.types(0.5, self.bob)
        self.console.says(b"x")
        self.assertEqual((self.ann.echoes, self.bob.echoes), ([], [0.5]))

    def test_discarded_input(self) -> None:
        """Input that does not reach the machine has no echo."""
        self.types(0.5, self.bob)  # an observer, because of another user
        self.console.says(b"x")
        self.assertEqual(self.bob.echoes, [])

    def test_streams_without_interest(self) -> None:
        """Streams of other makes need not know of echo times."""
        self.ann.drop()
        self.bob.drop()
        cat = self.attach()
        cat.viewer.data_received(b"x")
        self.console.says(b"x")
        self.assertEqual(cat.since(), b"x")

    def test_left(self) -> None:
        """A session that has left while the machine was silent is freed, and not measured."""
        self.types()
        viewer = ref(self.ann.viewer)
        self.ann.drop()
        del self.ann
        self.clock.advance(1)  # the others learn that it has left
        gc.collect()
        self.assertIsNone(viewer())
        self.console.says(b"x")

    def test_next_line(self) -> None:
        """Output of the machine's next line is no echo of input for the line before."""
        limits = ConsoleLimits(restart_seconds=60)
        self.shared = SharedConsole(self.console, self.clock, limits=limits)
        self.successResultOf(self.shared.open())
        self.ann = TimedStream(self.shared.viewer(), user="ann", options=CONSOLE)
        self.types(0.25)
        self.shared.interrupt(Ending(LINE_LOST, "the emulator ended"))
        self.successResultOf(self.shared.open())
        self.console.says(b"boot")
        self.assertEqual(self.ann.echoes, [])

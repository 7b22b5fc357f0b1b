"""
Recordings whose process is killed at each of its system calls: nothing is lost, nothing is twice.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tests import soak
from tests.journal.support import contents

from .support import UID, Case


class Killed(Exception):
    """The process is gone."""


class Dying:
    """
    The module ``os`` of a process that is killed.

    :param last: the number of calls until then; of the last one, a write is done by half.
    """

    def __init__(self, last: int) -> None:
        self.last = last

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            self.last -= 1
            if self.last == 0 and name == "pwrite":
                function(args[0], args[1][: len(args[1]) // 2], *args[2:])
            if self.last <= 0:
                raise Killed
            return function(*args, **options)

        return call

    def check(self) -> None:
        """:raises Killed: there was the last call, maybe in work that nobody waits for."""
        if self.last <= 0:
            raise Killed


class KillTests(Case):
    """A kill at each call that reads or writes the files of recordings."""

    def run_once(self, last: int) -> bool:
        """
        Record, with a kill at one call; then go on.

        :return: whether there was such a call.
        """
        self.setUp()
        self.kill()
        self.layer = layer = Dying(1 << 60)
        self.start()
        layer.last = last
        heads: list[str] = []
        self.was_ended = False
        with contextlib.suppress(Killed):
            self.set()
            layer.check()
            heads.append(self.status().head)
            self.journal.append(b"one ")
            self.wait(60)
            heads.append(self.status().head)
            self.journal.append(b"two ")
            self.was_ended = True
            self.end()
            heads.append(self.status().head)
        self.flushLoggedErrors(Killed)
        self.kill()
        self.layer = os
        self.start()
        if not heads:
            self.set()
        self.journal.append(b"three")
        self.end()
        output, printed = self.output(), contents(self.journal)
        if not self.was_ended:
            self.assertEqual(output, printed, last)
        else:
            self.assertIn(output, (b"one two ", printed), last)
        self.assertTrue(self.report().is_closed, last)
        for head in heads:
            self.assertIn(head.encode(), self.text(), last)
        self.assertEqual(self.recordings.count("Closed"), 1)
        self.assertEqual(self.recordings.facts(UID).failure, "")
        self.kill()
        return layer.last <= 0

    def test_each_call(self) -> None:
        """Whichever call it is, the recording is closed and proven, with every head that was reported."""
        number = 1
        while self.run_once(number):
            number += soak.figure(self)
        self.assertGreater(number, 20)

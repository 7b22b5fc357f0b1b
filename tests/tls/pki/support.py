"""A program that is killed while it writes files."""

from __future__ import annotations

import os
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase


class Killed(BaseException):
    """The program has been killed."""


class KillingTestCase(SynchronousTestCase):
    """Base of tests for directories whose program is killed while it writes."""

    def killed_before(self, write: int, run: Callable[[], object]) -> bool:
        """
        Run until just before a write, as if the program were killed there.

        :param write: number of a change or sync of a file, from 0.
        :return: whether there were so many.
        """
        done = 0

        def counted(call: Callable[..., object]) -> Callable[..., object]:
            def replaced(*arguments: object, **named: object) -> object:
                nonlocal done
                # Clean-up code that runs after the exception does not run in a killed program.
                if done >= write:
                    raise Killed
                done += 1
                return call(*arguments, **named)

            return replaced

        patches = [
            self.patch(os, name, counted(getattr(os, name)))
            for name in ("fsync", "replace", "unlink")
        ]
        try:
            run()
        except Killed:
            return True
        finally:
            for patch in patches:
                patch.restore()
        return False

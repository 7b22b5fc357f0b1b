"""Programs that tests use one after another."""

from __future__ import annotations

import shlex

from twisted.trial.unittest import TestCase

from tests import procfs
from tests.flows.deployment import pause
from tests.flows.programs import start

from .shared import ENDS_WITH_PARENT


class EndTests(TestCase):
    """What a killed process leaves."""

    async def test_killed(self) -> None:
        """A program that ends with its parent ends also when the parent is killed."""
        child = shlex.join([*ENDS_WITH_PARENT, "sleep", "1000"])
        parent = start(["sh", "-c", f"{child} >/dev/null 2>&1 & echo $!; exec sleep 1000"])
        pid = int((await parent.until(rb"\d+\n"))[0])
        while procfs.name(pid) != "sleep":
            await pause()
        await parent.stop(9)
        while procfs.is_alive(pid):
            await pause()

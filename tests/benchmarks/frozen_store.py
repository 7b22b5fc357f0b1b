"""
Keys in an open console while etcd stands still, twenty times for 15 s.

``FREEZES`` may name another number.  Between two freezes the store works for some seconds, in which the
API server finds its leader again and poollets report.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from twisted.internet.threads import deferToThread

from tests import needs
from tests.flows.deployment import Deployment, run_reactor
from tests.flows.programs import Program
from tests.storage.etcds import Etcds

from .fairness.bench import QUIET, MeasuredDeployment
from .fairness.quiet import Trips, Typist

_FROZEN_SECONDS, _WORKING_SECONDS = 15.0, 5.0


class _EtcdDeployment(MeasuredDeployment):
    """A chain on etcd."""

    def __init__(self, directory: str, etcds: Etcds) -> None:
        super().__init__(directory)
        self.storage = f"etcd:http://{etcds.target()}"

    def twistd(self, plugin: str, *options: str) -> Program:
        return Deployment.twistd(self, plugin, *options)


def _show(what: str, trips: Trips) -> None:
    figures = [trips.percentile(percent) for percent in (50, 99)]
    print(
        f"  {what:20} {len(trips.times):6} keys: p50 {figures[0]:6.1f} ms, p99 {figures[1]:6.1f} ms, "
        f"longest {max(trips.times, default=0.0):6.1f} ms, lost {trips.lost}"
    )


def measure(deployment: MeasuredDeployment, etcds: Etcds, freezes: int) -> None:
    """Type with a working store, and with one that stands still."""
    line, console = deployment.opened(QUIET, QUIET)
    console.type(b"stty raw -echo; echo rea''dy; exec cat\r")
    console.until(b"ready\n")
    typist, frozen = Typist(line, console), Trips()
    _show("working", typist.type_for(_WORKING_SECONDS))
    for number in range(1, freezes + 1):
        etcds.members[0].freeze()
        thaw = threading.Timer(_FROZEN_SECONDS, etcds.members[0].thaw)
        thaw.start()
        trips = typist.type_for(_FROZEN_SECONDS + 2)
        thaw.join()
        frozen.times += trips.times
        frozen.lost += trips.lost
        _show(f"frozen, {number}", trips)
        _show("working again", typist.type_for(_WORKING_SECONDS))
    _show("frozen, all", frozen)


def main(directory: Path) -> None:
    """Measure, if etcd is there."""
    if why := needs.etcd():
        print(f"frozen-store: {why}; nothing is measured.")
        return
    etcds = Etcds()
    etcds.start()

    async def measured() -> None:
        deployment = _EtcdDeployment(str(directory / "chain"), etcds)
        try:
            await deployment.prepare()
            freezes = int(os.environ.get("FREEZES", "20"))
            await deferToThread(measure, deployment, etcds, freezes)
        finally:
            await deployment.stop()
            etcds.end()

    run_reactor(measured)

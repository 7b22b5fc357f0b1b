"""
The session of the web console's page under load in both directions, with faults at random moments.

As :mod:`tests.interop.resume`, with the page's own modules under ``node`` instead of ``kubectl
console``; the page is also loaded again, which its browser tells the server by a Close 1001.
``MOMENTS`` is the number of faults, ``SEED`` repeats a run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.resuming import CabledDeployment

from .faults import MOMENTS, SEED, Faults
from .loaded_clients import LoadedClient, calm, compare, start_busy
from .lossy_network import LossyNetwork, missing

_CLIENT = Path(__file__).with_name("page_client.mjs")
_CABLES = ("near", "middle", "far")
_SILENT_SECONDS = 25.0
"""Longer than a page waits for a server: it gives the connection up, and the server reads its Close later."""
_EXEC = (
    "wss://127.0.0.1:{port}/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/{machine}"
    "/exec?stdin=true&stdout=true&tty=true"
)


class PageResumeTests(TestCase):
    """One machine, and one page that types and reads."""

    timeout = 300 + 15 * MOMENTS
    skip = needs.node()

    async def test_moments(self) -> None:
        """Nothing is missing and nothing is there twice, in both directions."""
        choice = random.Random(SEED)
        network = None if missing() else LossyNetwork()
        if network is not None:
            self.addCleanup(network.leave)
        deployment = CabledDeployment(self.mktemp(), runtime_options=["--keep-machines"])
        self.addCleanup(deployment.stop)
        (machine,) = await start_busy(deployment, ["busy"])
        url = _EXEC.format(port=deployment.near.port, machine=machine.name)
        page = LoadedClient(
            machine, ["node", str(_CLIENT), url, self.identity(deployment)], {}, types=True
        )
        self.addCleanup(page.stop)
        page.start()
        await page.until(lambda: page.output.size)
        faults = Faults(deployment, choice, _CABLES, ("api", "poollet"), network)
        faults.add("stop runtime", 1, lambda: faults.stop("runtime"))
        faults.add("end runtime", 8, lambda: deployment.restart("runtime", kill=False))
        faults.add("stop page", 3, lambda: faults.stop_for_a_while(page.signal))

        async def reload() -> None:
            page.signal(signal.SIGUSR2)

        faults.add("reload page", 24, reload)
        self.addCleanup(faults.report)
        await faults.stop("api", _SILENT_SECONDS)
        await calm([page])
        print(f"\n{MOMENTS} moments, SEED={SEED}")
        for _ in range(MOMENTS):
            page.rest()
            name = await faults.next()
            await calm([page])
            faults.took(name, [page.longest_pause])
        faults.compared = await compare([page])
        self.assertEqual(deployment.errors(), [])

    def identity(self, deployment: CabledDeployment) -> str:
        """Return the directory of a user's certificate and key."""
        directory = os.path.abspath(self.mktemp())
        os.makedirs(directory)
        pair = deployment.pki.issue_user("ada", ("system:masters",), replace=True)
        for source, name in (
            (deployment.pki.serving_ca, "ca.crt"),
            (pair.certificate, "user.crt"),
            (pair.key, "user.key"),
        ):
            shutil.copy(source, os.path.join(directory, name))
        return directory

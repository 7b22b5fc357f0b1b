"""
What it costs that sessions can be resumed and rejoined, and how soon they are.

There are two deployments of three programs each; the runtime of the second one rejoins no streams.
Each figure is measured in turn for ordinary sessions, for those that can be resumed and for those
that are rejoined.  Ratios are medians of the rounds, since others may use the machine as well.  That of
rejoined sessions is divided by the ratio of the deployments, which resumable sessions show.

``python -m tests.benchmarks resume``; ``SESSIONS`` is the number of sessions whose connections are lost
at once (1000 without it).
"""

from __future__ import annotations

import resource
from pathlib import Path

from twisted.internet.threads import deferToThread

from tests.flows.deployment import pause, run_reactor
from tests.flows.resuming import CabledDeployment

from . import costs, losses, steps


def main(directory: Path, *parts: str) -> None:
    """
    Run the benchmark.

    :param parts: ``memory``, ``keys``, ``output``, ``input``, ``steps`` or ``losses``; all without any.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def measured() -> None:
        deployment = CabledDeployment(str(directory / "with"))
        plain = CabledDeployment(str(directory / "without"), runtime_options=costs.WITHOUT)
        try:
            await plain.start()
            await deployment.start()
            for each in (deployment, plain):
                for name in costs.MACHINES:
                    await each.create_machine(name, "shell")
            await pause()
            bench = costs.Bench(deployment, plain)
            for name, measure in costs.PARTS.items():
                if not parts or name in parts:
                    await deferToThread(measure, bench)
            if not parts or "steps" in parts:
                steps.measure()
            if not parts or "losses" in parts:
                await losses.measure(deployment)
        finally:
            await deployment.stop()
            await plain.stop()

    run_reactor(measured)

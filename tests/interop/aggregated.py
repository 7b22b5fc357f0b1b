"""
kubectl through a real kube-apiserver, behind which is our API server: what
``docs/reference/aggregated.rst`` tells.

``python -m tests.interop.aggregated`` writes the page, and writes nothing when a cell did not work;
the test compares.  Machines are no Pods there, so what kubectl can do with Pods alone has no cell.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from unittest import SkipTest

from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.task import react
from twisted.trial.unittest import TestCase

from tests import needs
from tests.clients import kubectl as clients
from tests.clients.place import Chain
from tests.clients.table import (
    CANNOT,
    FAILED,
    WORKS,
    Row,
    cells_of,
    compare,
    not_compared,
    render,
    render_versions,
)
from tests.flows.kubectl.test_verbs import AT_ONCE, Command, Kubectl, commands
from tests.flows.programs import Program
from tests.interop import chains
from tests.interop.aggregated_cluster import AggregatedCluster
from tests.interop.hosts import kubectl
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "aggregated.rst"
COMMAND = "python -m tests.interop.aggregated"
"""Writes the page."""

_PODS = (
    "Behind a kube-apiserver, Pods are those of the cluster, and machines are not shown as Pods."
)
_CONSOLE = "With ``kubectl console``."
NOT_APPLICABLE = "n/a"

_HOSTS = {
    "version": (r"Server Version: .*v1\.33\.1",),
    "get --raw /readyz?verbose": (r"\[\+\]etcd ok", r"readyz check passed"),
    "get services -A": (r"exec-apiserver",),
    "create service clusterip x --tcp=80": (r"created",),
    "explain secret.stringData": (r"write-only",),
}
"""Where the answer is the host's: what it shows instead."""


class AggregatedChain(Chain):
    """All of it, with a poollet and a runtime for shells."""

    def __init__(self) -> None:
        super().__init__()
        # The table's machines name a pool that there is not; its Events are its own.
        self.cluster = AggregatedCluster("aggregated", "--no-scheduler")

    async def start(self) -> None:
        """As :meth:`Chain.start`; blocks."""
        cluster = self.cluster
        cluster.start()
        cluster.apply(
            {
                "apiVersion": f"{cluster.make.group}/v1alpha1",
                "kind": "MachineClass",
                "metadata": {"name": "pty"},
                "capabilities": {"cpu": "1", "memory": str(chains.MEMORY)},
            }
        )
        runtime = chains.our_runtime(cluster.programs, cluster.make.revision, class_name="pty")
        chains.our_poollet(cluster, self.pool, runtime)
        self.admin, self.nobody = cluster.kubeconfig, cluster.user("nobody", [])
        self.client = KubeClient(load(self.admin), reactor)

    @property
    def server(self) -> str:
        return self.cluster.url

    @property
    def ca(self) -> str:
        return self.cluster.pki.serving_ca

    async def stop(self) -> None:
        await super().stop()
        self.cluster.stop()


class BehindKubectl(clients.Kubectl):
    """One kubectl, where machines are no Pods."""

    pods = False
    cannot: Mapping[str, str] = dict.fromkeys(("attach", "exec", "logs -f"), _PODS)
    notes: Mapping[str, str] = dict.fromkeys(("stdin EOF", "resize", "exit status"), _CONSOLE)


class CountingKubectl(Kubectl):
    """
    The table of verbs, with what came of each.

    :ivar tried: for each verb how many commands there were.
    :ivar failed: verbs of which one did not show what it should.
    """

    def __init__(
        self, path: str, minor: int, directory: Path, admin: str, turns: DeferredSemaphore
    ) -> None:
        super().__init__(path, minor, directory, admin, turns)
        self.tried: dict[str, int] = {}
        self.failed: set[str] = set()

    def _check(self, each: Command, program: Program) -> None:
        words, before = each.line.split(), len(self.wrong)
        verb = " ".join(words[:2]) if words[0] in ("auth", "certificate") else words[0]
        super()._check(each, program)
        self.tried[verb] = self.tried.get(verb, 0) + 1
        if len(self.wrong) > before:
            self.failed.add(verb)


def rows(minor: int, newest: bool) -> Iterator[Command]:
    """The table of verbs, with what a host answers where it does."""
    for each in commands(minor, newest):
        if each.line in _HOSTS:
            yield dataclasses.replace(each, shows=_HOSTS[each.line], code=0)
        else:
            yield each


@dataclasses.dataclass(frozen=True)
class Found:
    """
    Results of the trial.
    :param clients: the same columns as in the table of clients.
    :param verbs: of each kubectl.
    :param failures: a paragraph for everything that did not work.
    """

    clients: Sequence[Row]
    verbs: Sequence[CountingKubectl]
    failures: Sequence[str]


async def find(newest: int = 0) -> Found:
    """
    Every kubectl of this machine.

    :param newest: minor version of the kubectl that tries every command; 0 for the newest here.
    """
    chain = AggregatedChain()
    try:
        await chain.start()
        found, failures = await clients.found(), list[str]()
        verbs = await _verbs(chain, found, newest)
        shown = []
        for number, each in enumerate(found):
            one = BehindKubectl(each.path, each.minor, await each.version())
            shown.append(await one.attempt(await chain.place(f"client-{number}"), failures))
        failures += [told for each in verbs for told in each.wrong]
        _wait_for_namespaces(chain.cluster)
        return Found(shown, verbs, failures)
    finally:
        await chain.stop()


async def _verbs(
    chain: AggregatedChain, found: Sequence[clients.Kubectl], newest: int
) -> list[CountingKubectl]:
    directory, turns = Path(tempfile.mkdtemp(dir=chain.directory)), DeferredSemaphore(AT_ONCE)
    minors = [int(each.minor.partition(".")[2]) for each in found]
    those = [
        CountingKubectl(each.path, minor, directory, chain.admin, turns)
        for each, minor in zip(found, minors, strict=True)
    ]
    await gatherResults(
        [
            Deferred.fromCoroutine(
                each.tell(list(rows(each.minor, each.minor == (newest or max(minors)))))
            )
            for each in those
        ],
        consumeErrors=True,
    )
    return those


def _wait_for_namespaces(cluster: AggregatedCluster) -> None:
    """Wait until the deleted namespaces are gone, with their contents."""

    def gone() -> bool:
        told = kubectl(cluster.kubeconfig, "get", "namespaces", "-o", "name")
        return "/k1" not in told

    cluster.programs.until("namespaces are gone", gone, 120)


_COMMANDS = "Commands\n--------\n"

_PAGE = """\
.. Written by ``{command}``: change it there.

Behind a kube-apiserver
=======================

This page shows which kubectl features work if the API server runs behind a real kube-apiserver.  The
tests used kube-apiserver 1.33.1 on etcd, with a kube-controller-manager, and the manifests of
:doc:`../howto/behind-kubernetes` with the permissions that these grant.  ``tox -e interop`` repeats
the tests and compares the results.

{table}
The columns are those of :doc:`clients`; "n/a" marks commands that kubectl supports for Pods only.
Logs of machines are read with ``kubectl get --raw``, see :doc:`logs`.

Commands
--------

All commands that are also tested against the API server in standalone mode, grouped by
verb.  If kube-apiserver itself answers (its version, its Services), that answer is compared.  If only
the server's answer matters, only the newest kubectl is tested.

{verbs}
Tested versions
---------------

{versions}
"""


def page(found: Found, date: str) -> str:
    """The whole page."""
    told = _PAGE.format(
        command=COMMAND,
        table=_clients(found.clients),
        verbs=_table(found.verbs),
        versions=render_versions(found.clients, date),
    )
    return told.rstrip() + "\n"


def _clients(found: Sequence[Row]) -> str:
    return render(found).replace(f"- {CANNOT}", f"- {NOT_APPLICABLE}")


def _table(found: Sequence[CountingKubectl]) -> str:
    verbs = sorted({verb for each in found for verb in each.tried})
    lines = [".. list-table::", "   :header-rows: 1", "   :stub-columns: 1", ""]
    lines += ["   * - ", *(f"     - 1.{each.minor}" for each in found)]
    for verb in verbs:
        lines.append(f"   * - ``{verb}``")
        for each in found:
            mark = FAILED if verb in each.failed else WORKS
            lines.append(f"     - {mark if verb in each.tried else ''}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


class AggregatedTests(TestCase):
    """The documentation shows the results of this run."""

    timeout = 1800
    skip = needs.aggregated()

    async def test_page(self) -> None:
        """Every cell again, with every kubectl that is here."""
        shown = PAGE.read_text(encoding="utf-8")
        _, _, verbs = shown.partition(_COMMANDS)
        *_, newest = map(_minor, cells_of(shown))
        found = await find(newest)
        self.assertEqual(list(found.failures), [], "\n\n".join(found.failures))
        for table, before in ((_clients(found.clients), shown), (_table(found.verbs), verbs)):
            self.assertEqual(compare(table, before), "", f"write it again: {COMMAND}")

    async def test_clients(self) -> None:
        """Every kubectl of the page is here."""
        here = {each.name for each in await clients.found()}
        if rest := not_compared(here, PAGE.read_text(encoding="utf-8")):
            raise SkipTest(rest)


def _minor(name: str) -> int:
    """Return the number in a name such as ``kubectl 1.27``."""
    return int(name.rpartition(".")[2])


async def _main() -> None:
    if missing := needs.aggregated():
        raise SystemExit(missing)
    found = await find()
    text = page(found, datetime.now(UTC).strftime("%Y-%m-%d"))
    if found.failures:
        raise SystemExit("\n\n".join([text, *found.failures]))
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    react(lambda _: Deferred.fromCoroutine(_main()))

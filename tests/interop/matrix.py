"""
Every chain that can be made of our programs and theirs, tried with a real console session.

{our, their} API server x {our, their} poollet x {our runtime, our broker, their broker,
libvirt-provider}, in the dialects whose programs exist.  A broker has a cluster of ours behind it.

``python -m tests.interop.matrix`` writes ``docs/reference/peers.rst``; the test compares.  The
table has only results that are the same in each run.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop import chains
from tests.interop.chains import CLASS, Backend, Cluster, LibvirtProvider, OurCluster
from tests.interop.hosts import kubectl
from tests.interop.ironcore import ForeignCluster, Make, ironcore, onmetal
from tests.interop.programs import Programs

PAGE = Path(__file__).parents[2] / "docs/reference/peers.rst"
RUNNING_SECONDS = 90.0
SESSION_SECONDS = 60.0

_APIS = {True: "our API server", False: "their API server"}
_POOLLETS = {"ours": "our poollet", "theirs": "their poollet"}


@dataclass(frozen=True)
class Cell:
    """One chain; without an API server and a poollet, a tool that asks what runs machines."""

    dialect: str
    backend: str
    apiserver: str = ""
    poollet: str = ""
    tool: str = ""


Results = dict[Cell, str]
"""``works``, or what was said instead."""

_REASONS = {
    "machine not found": (
        "Of the labels of a machine, their broker stores only the UID. Their poollet searches by name"
        " and finds nothing. Our poollet searches by UID."
    ),
}
"""For those that cannot work, whatever we do: what is said, and why."""


def try_all(makes: list[Make], libvirt_provider: str) -> Results:
    """Every chain of every dialect, with what came of it."""
    found: Results = {}
    for make in makes:
        with _backends(make, libvirt_provider) as backends:
            for cluster in (
                OurCluster(make),
                ForeignCluster(make, _kube_apiserver(), make.dialect),
            ):
                try:
                    cluster.start()
                    chains.prepare(cluster)
                    found.update(_try_cluster(cluster, backends))
                finally:
                    cluster.stop()
    return found


def _kube_apiserver() -> str:
    return needs.kube_apiserver_program() or "kube-apiserver"


@contextlib.contextmanager
def _backends(make: Make, libvirt_provider: str) -> Iterator[list[Backend]]:
    """All that can run a dialect's machines, started."""
    programs = Programs("backends-", keep=bool(os.environ.get("KEEP_LOGS")))
    behind = OurCluster(make, "behind")
    try:
        runtime = chains.our_runtime(programs, make.revision)
        behind.start()
        chains.prepare(behind)
        chains.our_poollet(behind, "behind", runtime)
        found = [
            runtime,
            chains.our_broker(programs, behind, make, "behind"),
            chains.their_broker(programs, behind, make, "behind"),
        ]
        if make.dialect == "ironcore":
            found.append(LibvirtProvider(programs, libvirt_provider).start())
        yield found
    finally:
        programs.stop()
        behind.stop()


def _try_cluster(cluster: Cluster, backends: list[Backend]) -> Results:
    found: Results = {}
    for poollet, start in (("ours", chains.our_poollet), ("theirs", chains.their_poollet)):
        for number, backend in enumerate(backends):
            cell = Cell(cluster.make.dialect, backend.name, _APIS[cluster.ours], _POOLLETS[poollet])
            pool = f"{poollet}-{number}"
            try:
                name = start(cluster, pool, backend)
                tools = cluster.ours and poollet == "ours"
                found.update(try_machine(cluster, pool, backend, tools))
                found[cell] = "works"
                cluster.programs.end(name)
            except AssertionError as problem:
                found[cell] = str(problem)
            print(f"{cell}: {found[cell]}", file=sys.stderr, flush=True)
    return found


def try_machine(cluster: Cluster, pool: str, backend: Backend, tools: bool) -> Results:
    """
    :param tools: ask the backend directly, too.
    :raises AssertionError: it does not run, or its console is not what it should be.
    """
    name, machines = f"m-{pool}", f"machines.{cluster.make.group}"
    spec = {"machineClassRef": {"name": CLASS}, "machinePoolRef": {"name": pool}}
    cluster.apply(
        {
            "apiVersion": f"{cluster.make.group}/v1alpha1",
            "kind": "Machine",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
    )
    state = ("get", machines, name, "-o", "jsonpath={.status.state}")
    cluster.programs.until(
        f"{name} runs",
        lambda: kubectl(cluster.kubeconfig, *state, check=False) == "Running",
        RUNNING_SECONDS,
    )
    console = partial(_console, cluster, name)
    if backend.shell:
        _try_shell(console)
    else:
        _try_virtual_machine(console)
    asked = _try_tools(cluster, name, backend) if tools else {}
    kubectl(cluster.kubeconfig, "delete", machines, name, "--timeout=100s")
    return asked


def _try_tools(cluster: Cluster, name: str, backend: Backend) -> Results:
    """Try our and their tools for the machine runtime interface."""
    field = "jsonpath={.status.machineID}"
    told = kubectl(cluster.kubeconfig, "get", f"machines.{cluster.make.group}", name, "-o", field)
    machine_id = told.rpartition("/")[2]
    found: Results = {}
    uid = [f"--runtime-uid={backend.uid}"] if backend.uid else []
    where = [f"--address={backend.endpoint}", f"--revision={backend.revision}", *uid]
    for tool, command in (
        ("twisted-exec iri", [*_OURS, "iri", "exec", *where]),
        (cluster.make.tool, [cluster.make.program(cluster.make.tool), "exec", where[0]]),
    ):
        opened = partial(_run, [*command, machine_id])
        cell = Cell(cluster.make.dialect, backend.name, tool=tool)
        try:
            if not backend.shell:
                _try_virtual_machine(opened)
            elif tool == cluster.make.tool:
                _try_shell(opened, exits=1, told="exit code 5")
            else:
                _try_shell(opened)
            found[cell] = "works"
        except AssertionError as problem:
            found[cell] = str(problem)
    return found


_OURS = [
    sys.executable,
    "-c",
    "import sys; from twisted_exec.cli.main import main; raise SystemExit(main())",
]

Opened = Callable[..., "subprocess.CompletedProcess[str]"]


def _run(command: list[str], *, input: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=SESSION_SECONDS
    )


def _console(cluster: Cluster, name: str, *, input: str) -> subprocess.CompletedProcess[str]:
    main = "from twisted_exec.cli.console.main import main; raise SystemExit(main())"
    command = [sys.executable, "-c", main, f"--kubeconfig={cluster.kubeconfig}"]
    return _run([*command, f"machines.{cluster.make.group}/{name}"], input=input)


def _try_shell(opened: Opened, *, exits: int = 5, told: str = "") -> None:
    """The interactive answer, the terminal's size, and the exit code."""
    deadline = time.monotonic() + SESSION_SECONDS
    while True:
        done = opened(input="stty size; echo $((6 * 7)); exit 5\n")
        if done.returncode == exits or time.monotonic() > deadline:
            break
        time.sleep(1)
    said = done.stderr.strip()[-300:]
    for answer in ("24 80", "42"):
        if answer not in done.stdout:
            raise AssertionError(f"no {answer!r} in {done.stdout!r}; {said!r}")
    if done.returncode != exits or told not in done.stderr:
        raise AssertionError(f"exit code {done.returncode}: {said!r}")


def _try_virtual_machine(opened: Opened) -> None:
    """libvirt-provider greets whoever reaches a machine's console, and leaves at ``^]``."""
    done = opened(input="\x1d")
    if "Escape character is ^]" not in done.stdout:
        raise AssertionError(f"{done.stdout!r}; {done.stderr.strip()[-300:]!r}")


# The page.

_HEAD = """\
.. Written by ``python -m tests.interop.matrix``: change it there.

Interoperability with ironcore and onmetal-api
==============================================

This page shows which combinations of our programs with those of ironcore and onmetal-api work.  In
the tables, "our" programs are those of this project, "their" programs those of ironcore or onmetal-api.

Each test creates a machine with ``kubectl apply``, waits until it runs, opens its console with
``kubectl console`` and deletes it.  In the console the test checks an answer, the window's size and
the exit code; for a virtual machine it checks the greeting of libvirt-provider.  Each broker has a
cluster of ours behind it, in the same dialect.  The first two rows call the machine runtime interface
directly.  The other programs are built from their Go modules.  ``tox -e interop`` repeats the tests
and compares the results.

There is no table for spheric, because its programs were not available.  Neither was
``kubectl ironcore``, which opens consoles over SPDY as ``irictl-machine`` does.
"""

_VERSIONS = {
    "ironcore": "ironcore v0.5.0, libvirt-provider v0.3.1, kube-apiserver 1.33.1",
    "onmetal": "onmetal-api v0.1.1, kube-apiserver 1.33.1",
}


def page(found: Results) -> str:
    """The documentation's page."""
    parts, notes = [_HEAD], list[str]()
    for dialect, versions in _VERSIONS.items():
        mine = {cell: result for cell, result in found.items() if cell.dialect == dialect}
        parts += [dialect, "-" * len(dialect), "", f"{versions}.", ""]
        parts += _table(mine, notes)
    parts += [f"[{number}] {note}\n" for number, note in enumerate(notes, 1)]
    return "\n".join(parts)


def _table(found: Results, notes: list[str]) -> list[str]:
    backends = list(dict.fromkeys(cell.backend for cell in found))
    rows = list(dict.fromkeys(_row(cell) for cell in found))
    lines = [".. list-table::", "   :header-rows: 1", "   :stub-columns: 1", "", "   * -"]
    lines += [f"     - {backend}" for backend in backends]
    for row in rows:
        lines.append(f"   * - {row}")
        for backend in backends:
            result = next(
                (found[each] for each in found if (_row(each), each.backend) == (row, backend)),
                "not tried: the machine did not run",
            )
            lines.append(f"     - {_told(result, notes)}")
    return [*lines, ""]


def _row(cell: Cell) -> str:
    return f"``{cell.tool}``" if cell.tool else f"{cell.apiserver}, {cell.poollet}"


def _told(result: str, notes: list[str]) -> str:
    if result == "works":
        return "✓"
    told, reason = next(
        (("no", why) for said, why in _REASONS.items() if said in result),
        ("fails", " ".join(result.split())[:300]),
    )
    if reason not in notes:
        notes.append(reason)
    return f"{told} [{notes.index(reason) + 1}]"


def makes() -> list[Make]:
    """Return the makes whose programs are tried."""
    return [
        ironcore(needs.interop_programs("ironcore")),
        onmetal(needs.interop_programs("onmetal")),
    ]


def _try() -> str:
    provider = os.path.join(needs.interop_programs("libvirt"), "libvirt-provider")
    return page(try_all(makes(), provider))


class MatrixTests(SynchronousTestCase):
    """The documentation shows the results of this run."""

    timeout = 1800
    skip = needs.peers()

    def test_page(self) -> None:
        """Every chain again."""
        self.assertEqual(_try(), PAGE.read_text())


def main() -> None:
    PAGE.write_text(_try())


if __name__ == "__main__":
    main()

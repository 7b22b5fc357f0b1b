"""
Actions of every kubectl with Pods of a leaf cluster, through real kube-apiservers.

``python -m tests.interop.leaf_table`` writes ``docs/reference/leaf-clients.rst``, in about five
minutes: for each root, each kubectl does every action of :mod:`tests.interop.leaf_actions`.  It
writes nothing when a cell did not work.  Besides what the other trials of leaf clusters need there
are kubectl 1.20 as Debian has it, kubectl and kube-apiserver of a newer release, and, where one is
found, kube-apiserver 1.20 (see :mod:`tests.interop`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests import needs
from tests.flows import kubectls
from tests.interop.leaf_actions import ACTIONS, Kubectl
from tests.interop.leaf_clusters import LeafClusters

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "leaf-clients.rst"

_PAGE = """\
.. Written by ``python -m tests.interop.leaf_table``: change it there.

Clients of leaf clusters
========================

This page shows which kubectl commands work against a root cluster for Pods that run in a leaf
cluster.  The tests used a real kube-apiserver as root, ``exec-nodeserver``, a real kube-apiserver as
leaf, and a test kubelet built from the streaming and log packages of Kubernetes.  Each cell was tested
with that kubectl,
on {date}; ✓ means that the result was the same as for the command in the leaf itself.

All commands except ``--since`` were also tested, through one root, with a complete kubelet and containerd in
the leaf (kubelet 1.33.1, containerd 1.6.20).  If these refuse a command, the root passes on their message.

{versions}
{tables}
The columns
-----------

{columns}
"""


@dataclass(frozen=True)
class Root:
    """
    A root to try.

    :param program: its kube-apiserver.
    :param options: of the node server before it.
    """

    title: str
    program: str
    options: tuple[str, ...] = ()


def roots() -> list[Root]:
    """Return the roots whose programs are installed."""
    programs = [
        needs.oldest_kube_apiserver_program(),
        needs.kube_apiserver_program(),
        newest := needs.newest_kube_apiserver_program() or "",
    ]
    found = [Root(f"Root {version(program)}", program) for program in programs if program]
    declaring = "--declare-websockets"
    return [*found, Root(f"Root {version(newest)}, ``{declaring}``", newest, (declaring,))]


def programs() -> dict[str, str]:
    """The kubectls, the oldest first."""
    named = {name: path for name, path in kubectls.found().items() if name != "kubectl"}
    return {
        "kubectl 1.20, Debian's": needs.oldest_kubectl_program() or "",
        **{name.replace(".", " ", 1): path for name, path in named.items()},
        "kubectl, newest": needs.newest_kubectl_program() or "",
    }


def missing() -> str | None:
    """Why this cannot be tried here, or ``None``."""
    return (
        needs.leaf_clusters()
        or needs.newest_kube_apiserver()
        or needs.newest_kubectl()
        or needs.oldest_kubectl()
    )


class Trial:
    """
    One root with all kubectls.

    :ivar failures: what did not work, a text each.
    """

    def __init__(self, root: Root) -> None:
        self.root, self.failures = root, list[str]()

    def run(self) -> dict[str, list[str]]:
        """The marks of each kubectl, a column each."""
        clusters = LeafClusters(root_program=self.root.program)
        try:
            clusters.start()
            clusters.start_node_server(*self.root.options)
            clusters.wait_for_node()
            clusters.add_pod()
            return {
                name: list(self._row(clusters, name, path)) for name, path in programs().items()
            }
        finally:
            clusters.stop()

    def _row(self, clusters: LeafClusters, name: str, path: str) -> Iterator[str]:
        scratch = clusters.programs.directory / name.replace(" ", "-")
        scratch.mkdir()
        one = Kubectl(path, clusters.root.kubeconfig, scratch, clusters.logged_between)
        for column, action in ACTIONS.items():
            try:
                action(one)
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                self.failures.append(f"{self.root.title}, {name}, {column}: {error}")
                yield "✗"
            else:
                yield "✓"


def table(marks: Mapping[str, Sequence[str]]) -> str:
    """One row for each kubectl."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :stub-columns: 1",
        "   :class: clients",
        "",
    ]
    columns = [f"``{name}``" for name in ACTIONS]
    for first, cells in {"": columns, **marks}.items():
        lines.append(f"   * - {first}".rstrip())
        lines += [f"     - {cell}" for cell in cells]
    return "\n".join(lines) + "\n"


def version(program: str) -> str:
    """Of a kube-apiserver, as in ``v1.33.1``."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    return told.stdout.split()[-1]


def versions() -> str:
    """Return the table of the tested programs and their versions."""
    scratch = Path("/nonexistent")
    found = {
        name: Kubectl(path, "", scratch, datetime.now(UTC)).version()
        for name, path in programs().items()
    }
    found |= {"leaf": version(needs.kube_apiserver_program() or "")}
    lines = [".. list-table::", "   :header-rows: 1", "", "   * - program", "     - version"]
    for name, told in found.items():
        lines += [f"   * - {name}", f"     - {told}"]
    return "\n".join(lines) + "\n"


def page(tables: Mapping[Root, Mapping[str, Sequence[str]]]) -> str:
    """The whole page."""
    shown = [
        f"{root.title}\n{'-' * len(root.title)}\n\n{table(marks)}" for root, marks in tables.items()
    ]
    told = [f"``{name}``\n    {(action.__doc__ or '').strip()}" for name, action in ACTIONS.items()]
    return _PAGE.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        versions=versions(),
        tables="\n".join(shown),
        columns="\n".join(told),
    )


def main() -> None:
    """Try everything, then write the page."""
    if why := missing():
        raise SystemExit(why)
    tables, failures = {}, []
    for root in roots():
        trial = Trial(root)
        tables[root] = trial.run()
        failures += trial.failures
        sys.stdout.write(f"{root.title}\n{table(tables[root])}\n")
        sys.stdout.flush()
    if failures:
        raise SystemExit("\n".join(failures))
    PAGE.write_text(page(tables), encoding="utf-8")


if __name__ == "__main__":
    main()

"""
The revisions of the machine runtime interface that clients and servers of ours speak.

==================  ==========================================================================
``ironcore``        ironcore v0.3.0 and later; the vocabulary inside.
``ironcore-0.2``    ironcore up to v0.2.4: the same names, other field numbers.
``onmetal``         onmetal-api's ORI, and ironcore v0.2.0, but for its events.
``onmetal-0.1``     onmetal-api v0.1, where volumes and network interfaces are objects.
``spheric``         spheric's ``runtime.v1alpha1.RuntimeService``.
==================  ==========================================================================

The first four have one service name, so a server has one of them at a time; spheric's has a name
of its own and stands beside.  They are not told apart by asking: an empty list of machines is
the same bytes in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions.older import IRONCORE_02, ONMETAL
from twisted_exec.iri.revisions.onmetal01 import ONMETAL_01
from twisted_exec.iri.revisions.revision import Revision, make_revision
from twisted_exec.iri.revisions.spheric import SPHERIC

__all__ = [
    "CONSOLE",
    "IRONCORE",
    "IRONCORE_02",
    "ONMETAL",
    "ONMETAL_01",
    "REVISIONS",
    "SPHERIC",
    "revision",
]

IRONCORE = make_revision("ironcore", pb.DESCRIPTOR.services_by_name["MachineRuntime"])

REVISIONS: Mapping[str, Revision] = {
    revision.name: revision for revision in (IRONCORE, IRONCORE_02, ONMETAL, ONMETAL_01, SPHERIC)
}

_CONSOLE = console_pb2.DESCRIPTOR.services_by_name["Console"]
CONSOLE = make_revision("console", _CONSOLE, inside=_CONSOLE)
"""Our own service beside any of them; ``IMachineLogs``."""


def revision(name: str) -> Revision:
    """
    A revision by its name.

    :raises ValueError: nobody's name; the message lists those there are.
    """
    try:
        return REVISIONS[name]
    except KeyError:
        raise ValueError(
            f"{name!r} is no revision of the machine runtime interface; "
            f"there are {', '.join(REVISIONS)}"
        ) from None

"""
The supported revisions of the machine runtime interface.

==================  ==========================================================================
``ironcore``        ironcore v0.3.0 and later; the current revision.
``onmetal``         onmetal-api's ORI: the same names, other field numbers.
``onmetal-0.1``     onmetal-api v0.1, where volumes and network interfaces are objects.
``spheric``         spheric's ``runtime.v1alpha1.RuntimeService``.
==================  ==========================================================================

The first three share one service name, so a server can serve only one of them, and spheric's in
addition. A client cannot detect them.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted_exec.iri.onmetal import ONMETAL, ONMETAL_01
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revision import Revision, make_revision
from twisted_exec.iri.spheric import SPHERIC

__all__ = [
    "CONSOLE",
    "IRONCORE",
    "ONMETAL",
    "ONMETAL_01",
    "REVISIONS",
    "SPHERIC",
    "revision",
]

IRONCORE = make_revision("ironcore", pb.DESCRIPTOR.services_by_name["MachineRuntime"])

REVISIONS: Mapping[str, Revision] = {
    revision.name: revision for revision in (IRONCORE, ONMETAL, ONMETAL_01, SPHERIC)
}

_CONSOLE = console_pb2.DESCRIPTOR.services_by_name["Console"]
CONSOLE = make_revision("console", _CONSOLE, inside=_CONSOLE)
"""Our additional service, for logs, alerts and recordings of consoles."""


def revision(name: str) -> Revision:
    """
    Return a revision by its name.

    :raises ValueError: there is no such revision.
    """
    try:
        return REVISIONS[name]
    except KeyError:
        raise ValueError(
            f"{name!r} is no revision of the machine runtime interface; "
            f"there are {', '.join(REVISIONS)}"
        ) from None

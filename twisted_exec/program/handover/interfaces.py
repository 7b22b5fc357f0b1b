"""
Interfaces between a program's service and the hand-over of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

LINGER_SECONDS: float = 3600
"""How long sessions that cannot move are served."""
HANDOVER_SECONDS: float = 10
"""How long a successor that is not ready may do nothing."""


@dataclass(frozen=True)
class ServiceState:
    """
    The state that a service hands over to the service of its successor.

    :param descriptors: open file descriptors; the receiver owns its copies.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    descriptors: Sequence[int] = ()


class IHandsOver(Interface):
    """
    A service that a successor can continue, in another process on the same host.

    In the old process :meth:`freeze` comes first, then either :meth:`thaw` or :meth:`retire`;
    ``stopService`` may come at any time, and means no hand-over unless :meth:`retire` was called.
    In the new process :meth:`inherit` comes before ``startService``. The program hands over the
    listening sockets, which accept no connections from the freeze on, and in the new process only
    when its predecessor has left. A service whose start needs connections to itself calls
    ``LISTENING.accept()`` of :mod:`twisted_exec.program.listening`.

    A service that holds another service is adapted by ``__conform__``.
    """

    state_version = Attribute(
        "Version of the state, an int.  A successor of an older version is refused."
    )

    def freeze() -> Deferred[ServiceState]:
        """Stop the use of everything that only one process may use; sessions stay open."""

    def thaw() -> Deferred[None]:
        """Go on as before, because the successor did not become ready."""

    def retire(linger_seconds: float) -> Deferred[None]:
        """
        Leave everything but the present sessions to the successor, which is ready.

        Sessions that their clients resume, or that a previous hop rejoins, may be cut.

        :param linger_seconds: how long the others are served.
        :return: fires when no session is left.  ``stopService`` then touches nothing that the
            successor uses.
        """

    def inherit(inherited: ServiceState) -> None:
        """
        Continue from the state of a predecessor.

        :raises ValueError: the state is not valid.
        """

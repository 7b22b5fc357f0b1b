"""What allowed a session."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SessionEvidence:
    """
    What allowed a session, for the session guard; each gate adds what its own reviews need.

    :param expires: the end of the credentials, in seconds since 1970.
    :param began: when the gate began to decide, by :func:`time.monotonic`.
    """

    expires: float = math.inf
    began: float = -math.inf

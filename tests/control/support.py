"""Support for tests of what backs off."""

from __future__ import annotations

import random


class WithoutJitter(random.Random):
    """Makes the pauses of a Backoff whole."""

    def random(self) -> float:
        return 1.0

"""
Visibilities: which objects of a resource a user may see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError
from twisted_exec.auth.interfaces import IVisibility


@implementer(IVisibility)
class FixedVisibility:
    """A visibility that depends on the content of each object and on nothing else."""

    def __init__(
        self, sees: Callable[[Object], bool], refusal: Callable[[Object], APIError]
    ) -> None:
        self._sees, self._refusal = sees, refusal

    def sees(self, obj: Object) -> bool:
        return self._sees(obj)

    def refusal(self, obj: Object) -> APIError:
        return self._refusal(obj)

    def since(self) -> int:
        return 0

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


@implementer(IVisibility)
class Intersection:
    """The objects that every one of several visibilities shows."""

    def __init__(self, visibilities: Sequence[IVisibility]) -> None:
        self._visibilities = tuple(visibilities)

    def sees(self, obj: Object) -> bool:
        return all(each.sees(obj) for each in self._visibilities)

    def refusal(self, obj: Object) -> APIError:
        refusals = (each.refusal(obj) for each in self._visibilities if not each.sees(obj))
        refusal: APIError = next(refusals)
        return refusal

    def since(self) -> int:
        return max(each.since() for each in self._visibilities)

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        stops = [each.follow(changed) for each in self._visibilities]

        def stop() -> None:
            for each in stops:
                each()

        return stop


def intersection(*visibilities: IVisibility | None) -> IVisibility | None:
    """Combine visibilities; ``None`` shows everything."""
    limited = [each for each in visibilities if each is not None]
    return Intersection(limited) if len(limited) > 1 else next(iter(limited), None)

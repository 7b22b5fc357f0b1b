"""
What was found wrong with kubeconfigs, so that lists, which do not look at them, agree with single looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted_exec.spacemanager.interfaces import BROKEN, Physical, SpaceInfo


class Verdicts:
    """The last of each physical space, for as long as its version is the same."""

    def __init__(self) -> None:
        self._refused: dict[Physical, SpaceInfo] = {}

    def note(self, info: SpaceInfo) -> SpaceInfo:
        """What a single look found; :return: the same."""
        if info.state == BROKEN:
            self._refused[info.physical] = info
        else:
            self._refused.pop(info.physical, None)
        return info

    def applied(self, infos: Iterable[SpaceInfo]) -> Sequence[SpaceInfo]:
        """A whole list, in order; those that are not in it are forgotten."""
        found = {info.physical: self._of(info) for info in infos}
        for physical in self._refused.keys() - found.keys():
            del self._refused[physical]
        return [found[physical] for physical in sorted(found)]

    def _of(self, info: SpaceInfo) -> SpaceInfo:
        refused = self._refused.get(info.physical)
        return refused if refused is not None and refused.version == info.version else info

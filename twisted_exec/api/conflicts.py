"""
Where an apply differs from what other managers have.

Worded as kube-apiserver words it: kubectl shows the message and explains, below
it, what can be done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from twisted_exec.api import fieldset
from twisted_exec.api.fieldset import FieldSet, Path
from twisted_exec.api.kinds import Kind
from twisted_exec.api.managers import UPDATE, Managed, Manager
from twisted_exec.api.status import Conflict

_MOST_CONFLICTS = 1000


class FieldConflicts(Conflict):
    """
    An apply differs from what others manage.

    At most a thousand fields are told: one body of labels could make for megabytes of them.

    :param found: managers and the paths that they have, by manager.
    """

    def __init__(self, found: Iterable[tuple[Manager, Path]], api_version: str) -> None:
        self.found, self._api_version = list(found), api_version
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {self._shown(manager)}",
                "field": fieldset.shown(path),
            }
            for manager, path in self.found[:_MOST_CONFLICTS]
        ]
        super().__init__(self._message(), details={"causes": causes})

    def less(self, paths: Iterable[Path]) -> FieldConflicts:
        """The conflicts over these paths alone."""
        chosen = set(paths)
        found = [(manager, path) for manager, path in self.found if path in chosen]
        return FieldConflicts(found, self._api_version)

    def _message(self) -> str:
        if len(self.found) == 1:
            [(manager, path)] = self.found
            told = f"conflict with {self._shown(manager)}: {fieldset.shown(path)}"
            return f"Apply failed with 1 conflict: {told}"
        lines: list[str] = []
        for manager, theirs in groupby(self.found[:_MOST_CONFLICTS], key=itemgetter(0)):
            lines.append(f"conflicts with {self._shown(manager)}:")
            lines += [f"- {fieldset.shown(path)}" for _, path in theirs]
        return f"Apply failed with {len(self.found)} conflicts: " + "\n".join(lines)

    def _shown(self, manager: Manager) -> str:
        told = json.dumps(manager.name, ensure_ascii=False)
        if manager.subresource:
            told += f' with subresource "{manager.subresource}"'
        return f"{told} using {self._api_version}" if manager.operation == UPDATE else told


def check_conflicts(kind: Kind, others: Managed, taken: FieldSet) -> None:
    """
    :param taken: what an apply would change.
    :raises FieldConflicts: others manage some of it.
    """
    found = [
        (manager, path)
        for manager in sorted(others, key=lambda each: (each.name, each.operation))
        for path in fieldset.paths(fieldset.intersection(others[manager].fields, taken))
    ]
    if found:
        raise FieldConflicts(found, kind.resource.api_version)

"""
Conflicts of an apply with other managers of its fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from twisted_exec.api.kinds import Kind
from twisted_exec.api.managedfields import fieldset
from twisted_exec.api.managedfields.entries import UPDATE, Managed, Manager
from twisted_exec.api.managedfields.fieldset import FieldSet, Path
from twisted_exec.api.status import Conflict

_MAX_CONFLICTS = 1000


class FieldManagerConflicts(Conflict):
    """
    An apply would change fields that other managers own.

    :param conflicts: pairs of a manager and a path that it owns.
    """

    def __init__(self, conflicts: Iterable[tuple[Manager, Path]], api_version: str) -> None:
        self.conflicts, self._api_version = list(conflicts), api_version
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {self._shown(manager)}",
                "field": fieldset.shown(path),
            }
            for manager, path in self.conflicts[:_MAX_CONFLICTS]
        ]
        super().__init__(self._message(), details={"causes": causes})

    def less(self, paths: Iterable[Path]) -> FieldManagerConflicts:
        """Return the conflicts over these paths only."""
        chosen = set(paths)
        selected = [(manager, path) for manager, path in self.conflicts if path in chosen]
        return FieldManagerConflicts(selected, self._api_version)

    def _message(self) -> str:
        if len(self.conflicts) == 1:
            [(manager, path)] = self.conflicts
            conflict = f"conflict with {self._shown(manager)}: {fieldset.shown(path)}"
            return f"Apply failed with 1 conflict: {conflict}"
        lines: list[str] = []
        for manager, theirs in groupby(self.conflicts[:_MAX_CONFLICTS], key=itemgetter(0)):
            lines.append(f"conflicts with {self._shown(manager)}:")
            lines += [f"- {fieldset.shown(path)}" for _, path in theirs]
        return f"Apply failed with {len(self.conflicts)} conflicts: " + "\n".join(lines)

    def _shown(self, manager: Manager) -> str:
        text = json.dumps(manager.name, ensure_ascii=False)
        if manager.subresource:
            text += f' with subresource "{manager.subresource}"'
        return f"{text} using {self._api_version}" if manager.operation == UPDATE else text


def check_conflicts(kind: Kind, others: Managed, changed: FieldSet) -> None:
    """
    Check that an apply leaves the fields of other managers alone.

    :param changed: the fields that the apply would change.
    :raises FieldManagerConflicts: other managers own some of them.
    """
    conflicts = [
        (manager, path)
        for manager in sorted(others, key=lambda each: (each.name, each.operation))
        for path in fieldset.paths(fieldset.intersection(others[manager].fields, changed))
    ]
    if conflicts:
        raise FieldManagerConflicts(conflicts, kind.resource.api_version)

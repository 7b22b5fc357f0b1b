"""
The verbs on ConsoleSessions, which clients only read and delete.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import (
    NotFound,
)
from twisted_exec.apiserver.consoles.sessions.record import RESOURCE
from twisted_exec.apiserver.interfaces import IAdmission
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.interfaces import User
from twisted_exec.program.turns import SharedTurns
from twisted_exec.storage.interfaces import IStorage


class SessionVerbs(Verbs):
    """
    The verbs on console sessions: a deletion writes the user into the object.

    Clients only read and delete these objects.
    """

    def __init__(
        self,
        storage: IStorage,
        admissions: Sequence[IAdmission],
        now: Callable[[], float],
        *,
        turns: SharedTurns | None = None,
    ) -> None:
        super().__init__(storage, admissions, now, turns=turns)
        self._sessions = storage

    async def remove(
        self, user: User, kind: Kind, old: Object, options: WriteOptions
    ) -> tuple[Object, bool]:
        if options.dry_run:
            return old, True
        noted = copy.deepcopy(old)
        noted.setdefault("status", {})["endedBy"] = user.name
        stored = await self._sessions.update(RESOURCE, noted)
        try:
            return await self._sessions.delete(RESOURCE, stored), True
        except NotFound:
            return stored, True  # the carrying server was faster

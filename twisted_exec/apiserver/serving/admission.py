"""
The chain of admissions of a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from twisted_exec.api import strategy
from twisted_exec.api.kinds import Object
from twisted_exec.api.managedfields.entries import Managed
from twisted_exec.apiserver.interfaces import (
    CREATE,
    UPDATE,
    Change,
    IAdmission,
    IMutatingAdmission,
)
from twisted_exec.apiserver.serving.fairness import Work
from twisted_exec.apiserver.serving.namespace_check import check_namespace
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage


@dataclass(frozen=True)
class Draft:
    """
    A complete object before validation.

    :param managed: ``managedFields``, if they were determined together with it.
    :param written: the client's version, if mutating admission has changed it.
    """

    body: Object
    managed: Managed | None = None
    written: Object | None = None


class AdmissionChain:
    """All admissions of a server."""

    def __init__(self, storage: IStorage, admissions: Sequence[IAdmission]) -> None:
        self._storage, self._admissions = storage, admissions
        self._mutating: list[IMutatingAdmission] = [
            each for each in admissions if IMutatingAdmission.providedBy(each)
        ]

    async def mutated(
        self,
        user: User,
        target: RequestTarget,
        draft: Draft,
        old: Object | None,
        options: WriteOptions,
        work: Work,
    ) -> Draft:
        """Run mutating admission on a draft."""
        if not self._mutating:
            return draft
        operation = CREATE if old is None else UPDATE
        written = await work.run(
            partial(
                strategy.prepared, target.kind, draft.body, target.namespace, creating=old is None
            )
        )
        if old is None:
            await check_namespace(self._storage, target.namespace)
        new = written
        for mutating in self._mutating:
            change = change_of(user, operation, target, new, old, options)
            new = await mutating.mutate(change)
        if new == written:
            return draft
        if submitted := draft.body.get("metadata", {}).get("managedFields"):
            written["metadata"]["managedFields"] = submitted
        return replace(draft, body=new, written=written)

    async def admit(self, change: Change) -> None:
        """
        Run validating admission.

        :raises APIError: the change is refused.
        """
        for admission in self._admissions:
            await admission.admit(change)


def change_of(
    user: User,
    operation: str,
    target: RequestTarget,
    new: Object | None,
    old: Object | None,
    options: WriteOptions,
) -> Change:
    """Describe a write for admission."""
    return Change(
        user,
        operation,
        target.kind,
        new,
        old,
        target.subresource,
        dry_run=options.dry_run,
        options=options.submitted,
        warnings=options.advice,
    )

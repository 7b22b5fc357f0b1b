"""The verbs, on objects: the layer between requests and the store."""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from twisted_exec.api import bodies, fields, strategy, times
from twisted_exec.api.encoded import encoded, json_bytes
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.managedfields import updates
from twisted_exec.api.managedfields.entries import (
    WriteOrigin,
    encode_entries,
    only_times_differ,
)
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    Expired,
    Invalid,
    NotFound,
    RequestEntityTooLarge,
)
from twisted_exec.api.users import MASTERS
from twisted_exec.apiserver.interfaces import (
    CREATE,
    DELETE,
    UPDATE,
    IAdmission,
)
from twisted_exec.apiserver.restriction.filtered_storage import FilteredStorage
from twisted_exec.apiserver.serving.admission import AdmissionChain, Draft, change_of
from twisted_exec.apiserver.serving.costs import cost_of_object
from twisted_exec.apiserver.serving.fairness import Work
from twisted_exec.apiserver.serving.field_validation import check_applied, check_body, check_patched
from twisted_exec.apiserver.serving.namespace_check import check_namespace
from twisted_exec.apiserver.serving.query import (
    ContinueExpired,
    ListOptions,
    WriteOptions,
    continue_token,
)
from twisted_exec.apiserver.serving.selection import candidates, is_selected
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.auth.interfaces import IVisibility, User
from twisted_exec.program.tasks import settled
from twisted_exec.program.turns import SharedTurns
from twisted_exec.storage.history import check_version_reached, key_of
from twisted_exec.storage.interfaces import IStorage, Listing

OURSELVES = User("system:apiserver", (MASTERS,))
"""The user for writes by the server itself."""

_LIMIT_OBJECT_BYTES = 1 << 20
_ATTEMPTS = 5
MOST_COMPARISONS = 2_000_000
"""Limit of the terms of a list's selectors, times the objects."""
SHORT_COMPARISONS = 2000
"""Comparisons that are made without a pause."""
_SMALL = 8
"""Objects that are selected or deleted without a pause."""

Make = Callable[[Object], Object]
"""From the stored object to the complete new one, before validation."""


_FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


@dataclass(frozen=True)
class ObjectPage:
    """
    A list, or one page of it.

    :param next: token for the next page, empty at the end.
    :param remaining: number of remaining items, if known.
    """

    items: Sequence[Object]
    version: int
    next: str = ""
    remaining: int | None = None


class Verbs:
    """
    The verbs over one store.

    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        storage: IStorage,
        admissions: Sequence[IAdmission],
        now: Callable[[], float],
        *,
        garbage_collection: bool = False,
        turns: SharedTurns | None = None,
    ) -> None:
        self._turns = turns
        self._garbage_collection = garbage_collection
        self._storage = self._visible = storage
        self._visibility: IVisibility | None = None
        self._admission = AdmissionChain(storage, admissions)
        self._now = now

    def through(self, visibility: IVisibility | None) -> Self:
        """
        Return the verbs of a user who may see only some of the objects.

        The other objects can be neither changed nor deleted.
        """
        if visibility is None:
            return self
        verbs = copy.copy(self)
        verbs._visible = FilteredStorage(self._storage, visibility)
        verbs._visibility = visibility
        return verbs

    async def get(self, target: RequestTarget, at_least: int | None = None) -> Object:
        """
        Read an object.

        :param at_least: oldest acceptable resourceVersion; 0 accepts a cached object; ``None``
            requires the result of every acknowledged write.
        :raises NotFound: the object does not exist.
        :raises APIError: the version is in the future, or another refusal.
        """
        resource, namespace, name = target.kind.resource, target.namespace, target.name
        stale = at_least is not None and at_least <= self._storage.version()
        if not stale and at_least:
            check_version_reached(at_least, await self._storage.current())
            stale = True
        return await settled(self._visible.get(resource, namespace, name, stale=stale))

    async def list(self, target: RequestTarget, options: ListOptions, user: str = "") -> ObjectPage:
        """
        List the objects that a client selects.

        :param user: the user that the comparisons are for.
        :raises Expired: the requested version is compacted.
        :raises APIError: another refusal.
        """
        kind = target.kind
        options.fields.check(kind.selectable)
        listing = await self._listing(target, options)
        is_filtered = options.selects or self._visibility is not None
        first = bisect_right(listing.items, options.start, key=key_of) if options.start[1] else 0
        items = candidates(listing.items[first:], target, options)
        if is_filtered:
            items = await self._selected(kind, items, options, user)
        elif options.limit:
            items = items[: options.limit + 1]
        if not options.limit or len(items) <= options.limit:
            return ObjectPage(items, listing.version)
        items = items[: options.limit]
        token = continue_token(listing.version, key_of(items[-1]))
        # As in Kubernetes, the remaining items of a filtered list are not counted.
        left = None if is_filtered else len(listing.items) - first - len(items)
        return ObjectPage(items, listing.version, token, left)

    async def _selected(
        self, kind: Kind, objects: Sequence[Object], options: ListOptions, user: str
    ) -> Sequence[Object]:
        if options.terms * len(objects) > MOST_COMPARISONS:
            raise BadRequest(
                f"the selectors have {options.terms} terms for {len(objects)} objects, and "
                f"{MOST_COMPARISONS} comparisons are the limit: use fewer terms"
            )
        found = []
        sees = None if self._visibility is None else self._visibility.sees
        is_short = max(1, options.terms) * len(objects) < SHORT_COMPARISONS
        # Much work begins in a turn of its own, or requests that come together would share one.
        began = self._turns.now if self._turns is not None and is_short else -math.inf
        for number, obj in enumerate(objects):
            if number % _SMALL == 0 and self._turns is not None:
                began = await self._turns.rest(began, user)
            if (sees is None or sees(obj)) and is_selected(kind, obj, options):
                found.append(obj)
                if options.limit and len(found) > options.limit:
                    break
        return found

    async def _listing(self, target: RequestTarget, options: ListOptions) -> Listing:
        resource, namespace = target.kind.resource, target.namespace
        stale = options.stale or 0 < options.at_least <= self._storage.version()
        try:
            # All of them: a page of the visible ones looks only at as many as it needs.
            listing = await settled(
                self._storage.list(resource, namespace, version=options.version, stale=stale)
            )
        except Expired:
            if options.start[1]:
                raise ContinueExpired(options.start) from None
            raise Expired("The resourceVersion for the provided list is too old.") from None
        check_version_reached(options.at_least, listing.version)
        return listing

    async def create(
        self,
        user: User,
        target: RequestTarget,
        body: Object,
        options: WriteOptions,
        work: Work | None = None,
    ) -> Object:
        """
        Create an object.

        :param work: of this request; by default everything is done at once.
        :raises AlreadyExists: the name exists.
        :raises APIError: another refusal, such as that of admission.
        """
        work = work or Work()
        await work.run(check_body, target.kind, body, options)
        return await self._create(user, target, Draft(body), options, work)

    async def _create(
        self, user: User, target: RequestTarget, draft: Draft, options: WriteOptions, work: Work
    ) -> Object:
        kind = target.kind
        draft = await self._admission.mutated(user, target, draft, None, options, work)
        cost = work.cost * kind.work_factor
        obj = await work.run(self._created, target, draft, options, cost=cost)
        await check_namespace(self._storage, target.namespace)
        await self._admission.admit(change_of(user, CREATE, target, obj, None, options))
        obj = await work.run(_sized, obj, draft, options)
        if options.dry_run:
            await self._check_name_is_free(kind, obj)
            return obj
        return await settled(self._storage.create(kind.resource, obj))

    def _created(self, target: RequestTarget, draft: Draft, options: WriteOptions) -> Object:
        namespace, now = target.namespace, self._now()
        obj = strategy.for_create(target.kind, draft.body, namespace=namespace, now=now)
        self._set_managers(target, None, obj, draft, options)
        return obj

    async def update(
        self,
        user: User,
        target: RequestTarget,
        body: Object,
        options: WriteOptions,
        work: Work | None = None,
    ) -> Object:
        """
        Replace the whole object.

        :raises Conflict: it has changed since the client read it.
        :raises APIError: another refusal.
        """
        kind, work = target.kind, work or Work()
        strategy.check_type(kind, body)
        await work.run(check_body, kind, body, options)

        def whole(old: Object) -> Draft:
            version = body.get("metadata", {}).get("resourceVersion")
            if not version and not kind.unconditional_update:
                message = "must be specified for an update"
                missing = fields.invalid("metadata.resourceVersion", 0, message)
                raise Invalid(kind.resource.kind, target.name, [missing], kind.resource.group)
            return Draft(body)

        return await self._rewrite(user, target, whole, options, work)

    async def patch(
        self,
        user: User,
        target: RequestTarget,
        make: Make,
        options: WriteOptions,
        work: Work | None = None,
    ) -> Object:
        """
        Change an existing object.

        :param make: applies the patch; must not modify its argument.
        """

        def patched(old: Object) -> Draft:
            new = make(old)
            strategy.check_identity(target.kind, new, old)
            check_patched(target.kind, new, options)
            return Draft(new)

        return await self._rewrite(user, target, patched, options, work or Work())

    async def apply(
        self,
        user: User,
        target: RequestTarget,
        config: Object,
        options: WriteOptions,
        *,
        force: bool,
        may_create: bool,
        work: Work | None = None,
    ) -> tuple[Object, bool]:
        """
        Server-side apply: set exactly the fields that ``options.manager`` wants.

        :return: the object as stored, and whether it was created.
        :raises Conflict: other managers have different values for some fields, or the configuration
            names another UID or version.
        :raises APIError: another refusal.
        """

        def applied(old: Object | None) -> Draft:
            writer = self._writer(target, options)
            result = updates.applied(target.kind, old, config, writer, force=force)
            if old is not None:
                strategy.check_identity(target.kind, result.body, old)
            check_applied(options)
            return Draft(result.body, result.managed)

        work = work or Work()
        try:
            return await self._rewrite(user, target, applied, options, work), False
        except NotFound:
            if not may_create or target.subresource:
                raise
        draft = await work.run(applied, None)
        body = strategy.first_applied(target.kind, draft.body, target.name)
        return await self._create(user, target, Draft(body, draft.managed), options, work), True

    async def delete(
        self, user: User, target: RequestTarget, options: WriteOptions, preconditions: Object
    ) -> tuple[Object, bool]:
        """
        Delete an object, or mark it for its finalizers.

        :param preconditions: required ``uid`` and ``resourceVersion``.
        :return: its last or current state, and whether it is deleted.
        """
        for attempt in range(_ATTEMPTS):
            old = await self.get(target)
            strategy.check_preconditions(
                target.kind,
                old,
                preconditions.get("uid"),
                preconditions.get("resourceVersion"),
                deleting=True,
            )
            await self._admission.admit(change_of(user, DELETE, target, None, old, options))
            try:
                return await self.remove(user, target.kind, old, options)
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the loop returns or raises")

    async def delete_collection(
        self, user: User, target: RequestTarget, chosen: ListOptions, options: WriteOptions
    ) -> ObjectPage:
        """Delete the objects that a list would return."""
        page, began = await self.list(target, chosen, user.name), -math.inf
        for number, obj in enumerate(page.items):
            if self._turns is not None and number >= _SMALL:
                began = await self._turns.rest(began, user.name)
            namespace, name = key_of(obj)
            each = RequestTarget(target.kind, namespace, name)
            try:
                await self.delete(user, each, options, {"uid": obj["metadata"]["uid"]})
            except NotFound:
                continue
        return page

    async def _rewrite(
        self,
        user: User,
        target: RequestTarget,
        make: Callable[[Object], Draft],
        options: WriteOptions,
        work: Work,
    ) -> Object:
        """
        Read, change and store an object, and retry on conflicts.

        With other writers on the store the first attempt uses a cached object.
        """
        first = 0 if self._storage.exclusive else -1
        for attempt in range(first, _ATTEMPTS):
            guessing = attempt < 0
            try:
                old = await self.get(target, 0 if guessing else None)
                new = await self._changed(user, target, old, make, options, work)
            except APIError:
                if not guessing:
                    raise
                continue
            if new == old or options.dry_run:
                if guessing:
                    continue
                return new
            try:
                return await self._store(target.kind, new, old)
            except Conflict:
                # A client's own version was already compared by for_update.
                if attempt == _ATTEMPTS - 1:
                    raise
            except NotFound:
                if not guessing:
                    raise
        raise AssertionError("the loop returns or raises")

    async def _changed(
        self,
        user: User,
        target: RequestTarget,
        old: Object,
        make: Callable[[Object], Draft],
        options: WriteOptions,
        work: Work,
    ) -> Object:
        cost = (work.cost + cost_of_object(old)) * target.kind.work_factor
        draft = await work.run(make, old, cost=cost)
        draft = await self._admission.mutated(user, target, draft, old, options, work)
        new = await work.run(self._updated, target, draft, old, options, cost=cost)
        await self._admission.admit(change_of(user, UPDATE, target, new, old, options))
        return await work.run(_sized, new, draft, options, cost=cost)

    def _updated(
        self, target: RequestTarget, draft: Draft, old: Object, options: WriteOptions
    ) -> Object:
        new = strategy.for_update(target.kind, draft.body, old, subresource=target.subresource)
        self._set_managers(target, old, new, draft, options)
        return new

    def _set_managers(
        self,
        target: RequestTarget,
        old: Object | None,
        new: Object,
        draft: Draft,
        options: WriteOptions,
    ) -> None:
        kind, metadata = target.kind, new["metadata"]
        if draft.managed is not None:
            entries = encode_entries(draft.managed, kind.resource.api_version)
        else:
            submitted = (draft.written or draft.body).get("metadata", {}).get("managedFields")
            writer = self._writer(target, options)
            entries = updates.updated(kind, old, draft.written or new, submitted, writer)
        metadata.pop("managedFields", None)
        if entries:
            metadata["managedFields"] = entries
        if draft.managed is not None and old is not None and only_times_differ(new, old):
            metadata["managedFields"] = old["metadata"]["managedFields"]

    def _writer(self, target: RequestTarget, options: WriteOptions) -> WriteOrigin:
        return WriteOrigin(options.manager, target.subresource, self._now())

    async def _store(self, kind: Kind, new: Object, old: Object) -> Object:
        if "deletionTimestamp" in old["metadata"] and not kind.held_by(new):
            return await settled(self._storage.delete(kind.resource, new))
        return await settled(self._storage.update(kind.resource, new))

    async def remove(
        self, user: User, kind: Kind, old: Object, options: WriteOptions
    ) -> tuple[Object, bool]:
        """
        Carry out an admitted delete.

        :return: as :meth:`delete`.
        :raises Conflict: the object has changed.
        """
        if self._garbage_collection and "deletionTimestamp" not in old["metadata"]:
            old = with_collector_finalizer(old, options.submitted)
        if kind.held_by(old):
            if "deletionTimestamp" in old["metadata"] or options.dry_run:
                return old, False
            marked = self._marked_for_deletion(kind, old)
            return await settled(self._storage.update(kind.resource, marked)), False
        if options.dry_run:
            return old, True
        return await settled(self._storage.delete(kind.resource, old)), True

    def _marked_for_deletion(self, kind: Kind, old: Object) -> Object:
        # Stored objects are never changed, so the new one shares all other parts with the old one.
        new = {**old, "metadata": {**old["metadata"]}}
        new["metadata"]["deletionTimestamp"] = times.timestamp(self._now())
        new["metadata"]["deletionGracePeriodSeconds"] = 0
        if kind.counts_generation:
            new["metadata"]["generation"] = new["metadata"].get("generation", 0) + 1
        if kind.terminating_status:
            new["status"] = {**new.get("status", {}), **kind.terminating_status}
        return new

    async def _check_name_is_free(self, kind: Kind, obj: Object) -> None:
        namespace, name = key_of(obj)
        try:
            await settled(self._storage.get(kind.resource, namespace, name))
        except NotFound:
            return
        raise AlreadyExists(kind.resource.plural, name, kind.resource.group)


def _sized(obj: Object, draft: Draft, options: WriteOptions) -> Object:
    limit_size(obj, applied=draft.managed is not None)
    return encoded(obj) if options.dry_run else obj


def limit_size(obj: Object, *, applied: bool = False) -> None:
    """
    Make an object that is too large fit by removing its ``managedFields``.

    :param applied: this is an apply, which needs them.
    :raises RequestEntityTooLarge: it is too large without them, too.
    """
    text = json_bytes(obj)
    if len(text) <= _LIMIT_OBJECT_BYTES and bodies.count_values(text) <= bodies.OBJECT.values:
        return
    if not applied and obj["metadata"].pop("managedFields", None):
        limit_size(obj, applied=True)
        return
    raise RequestEntityTooLarge(
        f"the object is larger than {_LIMIT_OBJECT_BYTES} bytes as JSON, or has more than "
        f"{bodies.OBJECT.values} values: split it into several objects"
    )


def with_collector_finalizer(obj: Object, options: Mapping[str, Any]) -> Object:
    """
    Return the object to delete, with the finalizer that the garbage collector waits for.

    Source: ``k8s.io/apiserver/pkg/registry/generic/registry/store.go``.
    """
    policy = "Orphan" if options.get("orphanDependents") else options.get("propagationPolicy")
    finalizer, held = _FINALIZERS.get(str(policy)), obj["metadata"].get("finalizers", [])
    if finalizer is None or finalizer in held:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [*held, finalizer]}}

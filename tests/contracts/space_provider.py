"""
Contract of every :class:`~twisted_exec.spacemanager.interfaces.ISpaceProvider`.

Inherit :class:`SpaceProviderContract` beside a trial ``TestCase``, and implement ``make_world``::

    class KindContractTests(SpaceProviderContract, TestCase):
        def make_world(self) -> SpaceWorld:
            return KindWorld(self.mktemp())

A case that the provider does not support is declared in ``SpaceWorld.cannot`` with the reason, and
then skipped. ``python -m tests.interop.space_table`` runs the cases and makes a table of all cases
and all providers.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, DeferredList, ensureDeferred
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from tests.contracts.space_world import SpaceWorld, parts_of, pause, secrets_of
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER, VIEWPOINTS
from twisted_exec.api.status import AlreadyExists, APIError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    IRotatesCredentials,
    ISpaceProvider,
    Physical,
    SpaceInfo,
    SpaceRequest,
)

OWNER, OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7", "16fd2706-8baf-433b-82eb-8c7fada847da"
"""UIDs of two Spaces."""
REFUSED = (400, 422)
UNREACHABLE = (502, 503, 504)
TIMEOUT_SHARE = 0.9
"""Share of trial's timeout after which a case is cancelled."""

Case = Callable[[Any], Awaitable[None]]
CASES: dict[str, str] = {}
"""Every case in the order of the table: its name and its description."""


def case(test: Case) -> Case:
    """
    Make a test a case of the contract; the first paragraph of its docstring is its description.
    """
    name = test.__name__.removeprefix("test_")
    CASES[name] = " ".join((test.__doc__ or "").split("\n\n")[0].split())

    @functools.wraps(test)
    async def run(self: Any) -> None:
        reason = self.world.cannot.get(name)
        if reason is None:
            # Without this turn, children that exit before the reactor runs are never reaped, nor
            # are later ones: trial's way to stop the reactor undoes its own way to start it.
            await pause(0)
            # After its timeout, trial would leave the case running beside the next one.
            running = Deferred.fromCoroutine(_started(self, test))
            await running.addTimeout(self.timeout * TIMEOUT_SHARE, reactor)
        else:
            self.assertTrue(reason.endswith("."), f"{name}: the reason is a sentence")

    return run


async def _started(self: Any, test: Case) -> None:
    await self.world.start()
    await test(self)


class SpaceProviderContract:
    """Tests; ``self`` is a :class:`twisted.trial.unittest.TestCase` with a real reactor."""

    timeout = 600
    version = ""
    """Version of the provider's program, once known."""

    def make_world(self: Any) -> SpaceWorld:
        """A provider without any physical space; not started."""
        raise NotImplementedError

    def setUp(self: Any) -> None:
        self.world: SpaceWorld = self.make_world()
        self.world.prepare()
        self.adaptors: list[ISpaceProvider] = []
        self.secrets: list[str] = []
        one, two, three = self.world.names
        self.red, self.green, self.blue = Physical(one), Physical(two), Physical(three)
        self.wanted = SpaceRequest(OWNER, self.world.parameters)

    async def tearDown(self: Any) -> None:
        for adaptor in self.adaptors:
            await adaptor.close()
        await self.world.stop()

    # Helpers of the cases.

    def adaptor(self: Any) -> ISpaceProvider:
        """Create another adaptor; it is closed after the test."""
        made: ISpaceProvider = self.world.make()
        self.adaptors.append(made)
        return made

    async def refused(self: Any, asking: Awaitable[Any], codes: Sequence[int]) -> APIError:
        """Return the error of a call; its message is one readable line without secrets."""
        try:
            told = await asking
        except APIError as error:
            self.check_message(error)
            self.assertIn(error.code, codes, error.message)
            return error
        self.fail(f"the call answered {told!r}")

    def check_message(self: Any, error: APIError) -> None:
        self.assertGreater(len(error.message.split()), 2, error.message)
        self.assertTrue(error.message.isprintable(), error.message)
        for secret in self.secrets:
            self.assertNotIn(secret, error.message)

    async def until(self: Any, what: str, true: Callable[[], Awaitable[Any]]) -> Any:
        """Return the first true result of ``true()``; the provider works between the calls."""
        deadline = reactor.seconds() + self.world.seconds
        while reactor.seconds() < deadline:
            if found := await true():
                return found
            await self.world.turn()
        self.fail(f"{what}: not in {self.world.seconds:.0f} seconds")

    async def found(self: Any, adaptor: ISpaceProvider, physical: Physical) -> SpaceInfo | None:
        """Return a physical space, or ``None`` if it does not exist."""
        try:
            info: SpaceInfo = await adaptor.get(physical)
        except APIError as error:
            self.assertEqual(error.code, 404, error.message)
            return None
        self.secrets += [
            secret for access in info.access.values() for secret in secrets_of(access.kubeconfig)
        ]
        for secret in self.secrets:
            self.assertNotIn(secret, repr(info))
        return info

    async def until_state(
        self: Any, adaptor: ISpaceProvider, physical: Physical, *states: str
    ) -> SpaceInfo:
        """Wait until a physical space is in one of these states, and return it."""

        async def look() -> SpaceInfo | None:
            info = await self.found(adaptor, physical)
            return info if info is not None and info.state in states else None

        return await self.until(f"{physical} is {' or '.join(states)}", look)  # type: ignore[no-any-return]

    async def until_gone(self: Any, adaptor: ISpaceProvider, physical: Physical) -> None:
        """Wait until a physical space is gone from the adaptor and from the provider."""

        async def look() -> bool:
            return await self.found(adaptor, physical) is None

        await self.until(f"{physical} is gone", look)
        self.assertNotIn(physical, await adaptor.list_names())
        self.assertNotIn(physical, await self.world.there())

    async def usable(self: Any, adaptor: ISpaceProvider, physical: Physical) -> SpaceInfo:
        """Create a physical space and wait until it is usable."""
        await adaptor.create(physical, self.wanted)
        info: SpaceInfo = await self.until_state(adaptor, physical, USABLE)
        self.assertEqual(info.owner, OWNER)
        return info

    async def listed(self: Any, adaptor: ISpaceProvider) -> dict[Physical, SpaceInfo]:
        """Return the list of physical spaces; both list methods must agree."""
        infos = await adaptor.list_spaces()
        found = {info.physical: info for info in infos}
        self.assertEqual(len(found), len(infos))
        self.assertEqual(list(await adaptor.list_names()), sorted(found))
        return found

    # The interface.

    @case
    async def test_interface(self: Any) -> None:
        """Implements the provider interface, and lists nothing if there is no physical space"""
        adaptor = self.adaptor()
        verifyObject(ISpaceProvider, adaptor)
        self.assertIsInstance(adaptor.default_parent, str)
        if IRotatesCredentials.providedBy(adaptor):
            verifyObject(IRotatesCredentials, adaptor)
        self.assertEqual(await self.listed(adaptor), {})
        await self.refused(adaptor.get(self.red), (404,))
        type(self).version = await self.world.version() or type(self).version

    @case
    async def test_create(self: Any) -> None:
        """A created physical space is listed with its owner mark and becomes usable"""
        adaptor = self.adaptor()
        info = await self.usable(adaptor, self.red)
        self.assertEqual(info.physical, self.red)
        listed = (await self.listed(adaptor))[self.red]
        self.assertEqual((listed.state, listed.owner), (USABLE, OWNER))
        self.assertEqual((listed.uid, listed.version), (info.uid, info.version))
        self.assertEqual(bool(info.uid), self.world.uids)

    @case
    async def test_create_again(self: Any) -> None:
        """Creating it again keeps the existing physical space unchanged"""
        adaptor = self.adaptor()
        await adaptor.create(self.red, self.wanted)
        await adaptor.create(self.red, self.wanted)
        before = await self.until_state(adaptor, self.red, USABLE)
        await adaptor.create(self.red, self.wanted)
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertEqual((after.uid, after.access), (before.uid, before.access))
        self.assertEqual(await self.world.there(), [self.red])

    @case
    async def test_delete(self: Any) -> None:
        """Deletion removes it completely; deleting it again, or one that never existed, is no error"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        kept = await self.usable(adaptor, self.green)
        await adaptor.delete(self.red, OWNER)
        left = await self.found(adaptor, self.red)
        self.assertTrue(left is None or left.state == GOING, left)
        await adaptor.delete(self.red, OWNER)
        await self.until_gone(adaptor, self.red)
        await adaptor.delete(self.red, OWNER)
        await adaptor.delete(self.blue, OWNER)
        self.assertEqual(await self.world.there(), [self.green])
        self.assertEqual((await adaptor.get(self.green)).uid, kept.uid)

    @case
    async def test_delete_early(self: Any) -> None:
        """A physical space that is not usable yet can be deleted"""
        adaptor = self.adaptor()
        await adaptor.create(self.red, self.wanted)
        await adaptor.delete(self.red, OWNER)
        await self.until_gone(adaptor, self.red)

    @case
    async def test_recreate(self: Any) -> None:
        """A name can be reused after deletion, and the new physical space has another UID"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        await adaptor.delete(self.red, OWNER)
        await self.until_gone(adaptor, self.red)
        await adaptor.create(self.red, SpaceRequest(OTHER, self.world.parameters))
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertEqual(after.owner, OTHER)
        if self.world.uids:
            self.assertNotEqual(after.uid, before.uid)

    @case
    async def test_foreign(self: Any) -> None:
        """
        An existing physical space of the same name without our mark is refused and never changed or
        deleted
        """
        await self.world.make_foreign(self.red)
        adaptor = self.adaptor()
        before = await self.until_state(adaptor, self.red, USABLE)
        self.assertFalse(before.owner)
        error = await self.refused(adaptor.create(self.red, self.wanted), (409,))
        self.assertEqual(error.reason, AlreadyExists.reason)
        self.assertIn(self.red.name, error.message)
        error = await self.refused(adaptor.delete(self.red, OWNER), (409,))
        self.assertEqual(error.reason, "Conflict")
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertEqual((after.uid, after.owner), (before.uid, before.owner))
        self.assertEqual(list(await self.listed(adaptor)), [self.red])

    @case
    async def test_another_owner(self: Any) -> None:
        """The same for one with the mark of another Space"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        other = SpaceRequest(OTHER, self.world.parameters)
        error = await self.refused(adaptor.create(self.red, other), (409,))
        self.assertEqual(error.reason, AlreadyExists.reason)
        error = await self.refused(adaptor.delete(self.red, OTHER), (409,))
        self.assertEqual(error.reason, "Conflict")
        error = await self.refused(adaptor.delete(self.red, ""), (409,))
        self.assertEqual(error.reason, "Conflict")
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertEqual((after.uid, after.owner), (before.uid, OWNER))

    # The provider cannot be reached, or refuses us.

    async def nothing_answers(self: Any, adaptor: ISpaceProvider) -> None:
        for asking in self.all_calls(adaptor):
            await self.refused(asking(), UNREACHABLE)

    def all_calls(self: Any, adaptor: ISpaceProvider) -> list[Callable[[], Deferred[Any]]]:
        """One call of each kind, for the space red, which need not exist."""
        return [
            adaptor.list_spaces,
            adaptor.list_names,
            lambda: adaptor.get(self.red),
            lambda: adaptor.create(self.red, self.wanted),
            lambda: adaptor.delete(self.red, OWNER),
        ]

    @case
    async def test_down_at_start(self: Any) -> None:
        """Provider down at the start: calls fail with that error, and work once it is back"""
        await self.world.make_foreign(self.red)
        await self.world.break_down()
        adaptor = self.adaptor()
        await self.nothing_answers(adaptor)
        await self.world.come_back()
        await self.until_state(adaptor, self.red, USABLE)
        await self.usable(adaptor, self.green)

    @case
    async def test_down_midway(self: Any) -> None:
        """Provider goes down and comes back: calls fail and never return an empty list; no data is lost"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        await self.world.break_down()
        await self.nothing_answers(adaptor)
        await self.world.come_back()
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertEqual((after.uid, after.owner), (before.uid, OWNER))
        await adaptor.delete(self.red, OWNER)
        await self.until_gone(adaptor, self.red)

    @case
    async def test_down_while_made(self: Any) -> None:
        """Provider goes down between create and usable, and again between delete and gone"""
        await self.world.hold()
        adaptor = self.adaptor()
        await adaptor.create(self.red, self.wanted)
        await self.world.break_down()
        await self.refused(adaptor.get(self.red), UNREACHABLE)
        await self.world.release()
        await self.world.come_back()
        await self.until_state(adaptor, self.red, USABLE)
        await adaptor.delete(self.red, OWNER)
        await self.world.break_down()
        await self.refused(adaptor.get(self.red), UNREACHABLE)
        await self.world.come_back()
        await adaptor.delete(self.red, OWNER)
        await self.until_gone(adaptor, self.red)

    @case
    async def test_nonsense(self: Any) -> None:
        """Invalid answer of the provider: an error, never an empty list"""
        await self.world.make_foreign(self.red)
        adaptor = self.adaptor()
        await self.until_state(adaptor, self.red, USABLE)
        await self.world.talk_nonsense()
        for asking in self.all_calls(adaptor):
            await self.refused(asking(), (500, *UNREACHABLE))
        await self.world.come_back()
        await self.until_state(adaptor, self.red, USABLE)

    @case
    async def test_revoked(self: Any) -> None:
        """Provider credentials revoked or expired: Unauthorized, and no data is lost"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        await self.world.revoke()
        for asking in self.all_calls(adaptor):
            await self.refused(asking(), (401,))
        late = self.adaptor()
        await self.refused(late.list_spaces(), (401,))
        await self.world.renew()
        renewed = self.adaptor()
        after = await self.until_state(renewed, self.red, USABLE)
        self.assertEqual((after.uid, after.owner), (before.uid, OWNER))

    @case
    async def test_rotated(self: Any) -> None:
        """Provider credentials replaced: work continues with the new ones"""
        old = self.adaptor()
        await old.create(self.red, self.wanted)
        await self.world.renew()
        new = self.adaptor()
        await old.close()
        await self.until_state(new, self.red, USABLE)
        await self.world.revoke()
        await self.world.renew()
        newest = self.adaptor()
        await new.close()
        await newest.delete(self.red, OWNER)
        await self.until_gone(newest, self.red)

    @case
    async def test_forbidden(self: Any) -> None:
        """Provider permissions withdrawn: Forbidden, never an empty list"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        await self.world.forbid()
        for asking in self.all_calls(adaptor):
            await self.refused(asking(), (403,))

    # Physical spaces that are not usable, or not any more.

    @case
    async def test_not_ready(self: Any) -> None:
        """A listed physical space that is not ready is Building, and not usable before it is ready"""
        await self.world.hold()
        adaptor = self.adaptor()
        await adaptor.create(self.red, self.wanted)
        for _ in range(3):
            info = await self.found(adaptor, self.red)
            self.assertEqual((info.state, info.owner), (BUILDING, OWNER))
            self.assertEqual((await self.listed(adaptor))[self.red].state, BUILDING)
            await self.world.turn()
        await self.world.release()
        await self.until_state(adaptor, self.red, USABLE)

    @case
    async def test_access_late(self: Any) -> None:
        """Kubeconfigs missing at first: the space is listed without access, then with it"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        await self.world.hide_access(self.red)
        info = await self.found(adaptor, self.red)
        self.assertEqual((info.owner, dict(info.access)), (OWNER, {}))
        self.assertIn(self.red, await self.listed(adaptor))
        await self.world.show_access(self.red)

        async def look() -> bool:
            info = await self.found(adaptor, self.red)
            return info is not None and info.state == USABLE and bool(info.access)

        await self.until("the access is there", look)

    @case
    async def test_partial(self: Any) -> None:
        """A kubeconfig for only one viewpoint is returned; the missing one is no error"""
        adaptor = self.adaptor()
        for viewpoint in VIEWPOINTS:
            await self.usable(adaptor, self.red)
            await self.world.only(self.red, viewpoint)
            info = await self.found(adaptor, self.red)
            self.assertEqual(list(info.access), [viewpoint])
            await adaptor.delete(self.red, OWNER)
            await self.until_gone(adaptor, self.red)

    @case
    async def test_broken(self: Any) -> None:
        """A permanently broken one reports why; creating it again makes it usable"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        await self.world.wreck(self.red)
        info = await self.until_state(adaptor, self.red, BROKEN)
        self.assertEqual(info.owner, OWNER)
        self.assertTrue(info.reason.isalnum() and info.message, info)
        await adaptor.create(self.red, self.wanted)
        await self.until_state(adaptor, self.red, USABLE)

    @case
    async def test_vanished(self: Any) -> None:
        """A vanished physical space is no longer listed; a new one of its name has another UID and no Space"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        await self.world.vanish(self.red)
        await self.until_gone(adaptor, self.red)
        await self.world.make_foreign(self.red)
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertFalse(after.owner)
        if self.world.uids:
            self.assertNotEqual(after.uid, before.uid)
        await self.refused(adaptor.create(self.red, self.wanted), (409,))

    @case
    async def test_vanished_recreated(self: Any) -> None:
        """A vanished physical space can be created again"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        await self.world.vanish(self.red)
        await self.until_gone(adaptor, self.red)
        await self.usable(adaptor, self.red)

    # Managers are killed, and two may run at once.

    async def killed(self: Any, act: Callable[[ISpaceProvider], Any], steps: int) -> bool:
        """
        Run an action on an adaptor whose manager is killed after ``steps`` steps.

        :param act: a coroutine function that takes the adaptor.
        :return: whether the manager was killed before the action ended.
        """
        adaptor = self.world.make()
        await self.world.die_after(steps)
        ended: list[Any] = []
        acting = Deferred.fromCoroutine(act(adaptor))
        acting.addBoth(ended.append)

        async def over() -> bool:
            return bool(ended) or self.world.died()

        await self.until("it ended, or was killed", over)
        killed = bool(self.world.died())
        acting.cancel()
        await adaptor.close()
        await self.world.live()
        if not killed and isinstance(ended[0], Failure):
            ended[0].raiseException()
        return killed

    async def make_red(self: Any, adaptor: ISpaceProvider) -> None:
        await self.usable(adaptor, self.red)

    async def delete_red(self: Any, adaptor: ISpaceProvider) -> None:
        await adaptor.delete(self.red, OWNER)
        await self.until_gone(adaptor, self.red)

    async def killed_at_each_step(
        self: Any,
        before: Callable[[ISpaceProvider], Any],
        act: Callable[[ISpaceProvider], Any],
        after: Callable[[ISpaceProvider], Any],
    ) -> None:
        """Repeat an action, killed one step later each time, until it ends before the kill."""
        killed, steps = True, 0
        while killed:
            adaptor = self.adaptor()
            await before(adaptor)
            await adaptor.close()
            killed = await self.killed(act, steps)
            steps += 1
            adaptor = self.adaptor()
            left = await self.found(adaptor, self.red)
            # A space in deletion may have lost its owner mark already.
            unknown = left is not None and left.state == GOING and left.owner is None
            self.assertTrue(left is None or unknown or left.owner == OWNER, left)
            await after(adaptor)
            await self.delete_red(adaptor)
            await adaptor.close()
            self.assertEqual(await self.world.there(), [])
        self.assertGreater(steps, 1, "nothing was a step")

    async def nothing(self: Any, adaptor: ISpaceProvider) -> None:
        """Do nothing."""

    @case
    async def test_killed_while_creating(self: Any) -> None:
        """Manager killed between any two steps from create to usable: the next one finishes"""
        await self.killed_at_each_step(self.nothing, self.make_red, self.make_red)

    @case
    async def test_killed_and_forgotten(self: Any) -> None:
        """The same, and the Space is deleted meanwhile: nothing is left over"""
        await self.killed_at_each_step(self.nothing, self.make_red, self.nothing)

    @case
    async def test_killed_while_deleting(self: Any) -> None:
        """Manager killed between any two steps from delete to gone: the next one finishes"""
        await self.killed_at_each_step(self.make_red, self.delete_red, self.nothing)

    @case
    async def test_killed_then_kept(self: Any) -> None:
        """
        Manager killed during a deletion, and a Space requests the name again: it can be created
        once deleted
        """
        await self.killed_at_each_step(self.make_red, self.delete_red, self.remake_red)

    async def remake_red(self: Any, adaptor: ISpaceProvider) -> None:
        await self.delete_red(adaptor)
        await self.make_red(adaptor)

    @case
    async def test_two(self: Any) -> None:
        """Two concurrent managers create one physical space, and delete it once"""
        one, two = self.adaptor(), self.adaptor()
        await self.both(one.create(self.red, self.wanted), two.create(self.red, self.wanted))
        await one.close()
        await self.until_state(two, self.red, USABLE)
        self.assertEqual(list(await self.listed(two)), [self.red])
        three = self.adaptor()
        await self.both(two.delete(self.red, OWNER), three.delete(self.red, OWNER))
        await two.close()
        await self.until_gone(three, self.red)
        self.assertEqual(await self.world.there(), [])

    async def both(self: Any, *calls: Deferred[None]) -> None:
        """At least one call succeeds; the others may fail with Conflict or as unreachable."""
        results = await DeferredList(calls, consumeErrors=True)
        problems = [told.value for fine, told in results if not fine]
        for problem in problems:
            self.assertIsInstance(problem, APIError)
            self.assertIn(problem.code, (409, *UNREACHABLE), problem)
        self.assertLess(len(problems), len(calls), problems)

    @case
    async def test_close(self: Any) -> None:
        """Closing stops all local activity and keeps the physical spaces; closing twice is harmless"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        adaptor.watch(lambda _physical: None)
        asked = ensureDeferred(self.ignored(adaptor.list_spaces()))
        await adaptor.close()
        await adaptor.close()
        await asked
        self.assertEqual(list(self.world.left()), [])
        later = self.adaptor()
        after = await self.until_state(later, self.red, USABLE)
        self.assertEqual((after.uid, after.owner), (before.uid, OWNER))

    async def ignored(self: Any, asking: Deferred[Any]) -> None:
        try:
            await asking
        except (APIError, CancelledError):
            pass

    @case
    async def test_cancel(self: Any) -> None:
        """Any call can be cancelled: it ends at once, and the next call works"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        for asking in self.all_calls(adaptor):
            await self.cancelled(asking())
            self.assertEqual(list(self.world.left()), [])
        await adaptor.create(self.green, self.wanted)
        await self.until_state(adaptor, self.green, USABLE)

    @case
    async def test_stalled(self: Any) -> None:
        """Provider never answers: any call can be cancelled and leaves nothing behind"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        await self.world.stall()
        for asking in self.all_calls(adaptor)[:-1]:
            call = asking()
            await self.world.turn()
            self.assertTrue(await self.cancelled(call), "the call ended although nobody answered")
            self.assertEqual(list(self.world.left()), [])
        await self.world.come_back()
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertEqual(after.uid, before.uid)

    async def cancelled(self: Any, call: Deferred[Any]) -> bool:
        """Cancel a call, and return whether it failed because of that."""
        ended: list[Any] = []
        call.addBoth(ended.append)
        before = len(ended)
        call.cancel()

        async def over() -> bool:
            return bool(ended)

        await self.until("the call ended", over)
        if before or not isinstance(ended[0], Failure):
            return False
        self.assertIsInstance(ended[0].value, CancelledError | APIError)
        return True

    # Hints, lists and access.

    @case
    async def test_hints(self: Any) -> None:
        """A watcher receives changes made by others until it stops watching"""
        adaptor = self.adaptor()
        hints: list[Physical | None] = []
        stop = adaptor.watch(hints.append)

        async def told() -> bool:
            return self.red in hints or None in hints

        await adaptor.list_spaces()
        await self.world.watching(adaptor)
        for change in (self.world.make_foreign, self.world.vanish):
            hints.clear()
            await change(self.red)
            await self.until("a hint came", told)
        stop()
        await self.world.turn()
        hints.clear()
        await self.world.make_foreign(self.green)
        for _ in range(5):
            await self.world.turn()
        self.assertEqual(hints, [])
        stop()

    @case
    async def test_many(self: Any) -> None:
        """A list needs the same few calls, whatever its length"""
        adaptor = self.adaptor()
        await adaptor.list_spaces()
        many = [Physical(f"{self.blue.name}{number:03}") for number in range(self.world.many)]
        for physical in many:
            await self.world.make_foreign(physical)

        async def look() -> bool:
            return len(await adaptor.list_names()) == len(many)

        await self.until("all are listed", look)
        for asking in (adaptor.list_spaces, adaptor.list_names):
            before = self.world.calls()
            self.assertEqual(len(await asking()), len(many))
            self.assertLessEqual(self.world.calls() - before, self.world.list_calls)
        self.assertEqual(sorted(await self.listed(adaptor)), many)

    @case
    async def test_access(self: Any) -> None:
        """A kubeconfig has one cluster, one user and one context, and refers to no file or program"""
        info = await self.usable(self.adaptor(), self.red)
        self.assertTrue(info.access)
        self.assertLessEqual(set(info.access), {IN_CLUSTER, EXTERNAL})
        for viewpoint, access in info.access.items():
            parts = parts_of(access.kubeconfig)
            sizes = [len(parts[name]) for name in ("clusters", "users", "contexts")]
            self.assertEqual(sizes, [1, 1, 1], viewpoint)
            self.assertEqual(parts["current-context"], parts["contexts"][0]["name"])
            config = load_inline(access.kubeconfig, viewpoint)
            self.assertTrue(config.server.startswith("https://"), config.server)
            self.assertEqual(len(secrets_of(access.kubeconfig)), 1)
            self.assertNotIn(secrets_of(access.kubeconfig)[0], repr(access))

    @case
    async def test_access_own(self: Any) -> None:
        """No two physical spaces share a secret"""
        adaptor = self.adaptor()
        red, green = await self.usable(adaptor, self.red), await self.usable(adaptor, self.green)
        secrets = [
            {secret for access in info.access.values() for secret in secrets_of(access.kubeconfig)}
            for info in (red, green)
        ]
        self.assertTrue(secrets[0].isdisjoint(secrets[1]))

    @case
    async def test_works(self: Any) -> None:
        """A kubeconfig opens the API of its physical space"""
        info = await self.usable(self.adaptor(), self.red)
        for viewpoint, access in info.access.items():
            await self.world.works(access, viewpoint)

    @case
    async def test_rotates(self: Any) -> None:
        """Rotation gives other credentials; the previous ones remain valid"""
        adaptor = self.adaptor()
        before = await self.usable(adaptor, self.red)
        await IRotatesCredentials(adaptor).rotate(self.red)
        after = await self.until_state(adaptor, self.red, USABLE)
        self.assertEqual(
            (after.uid, after.owner, set(after.access)), (before.uid, OWNER, set(before.access))
        )
        for viewpoint, access in after.access.items():
            self.assertNotEqual(
                secrets_of(access.kubeconfig), secrets_of(before.access[viewpoint].kubeconfig)
            )
            if "works" not in self.world.cannot:
                await self.world.works(access, viewpoint)
                await self.world.works(before.access[viewpoint], viewpoint)
        if before.version:
            self.assertNotEqual(after.version, before.version)
        await self.refused(IRotatesCredentials(adaptor).rotate(self.green), (404,))

    # Names, places and parameters.

    @case
    async def test_names(self: Any) -> None:
        """An invalid name is refused and changes nothing"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        for name in self.world.no_names:
            impossible = Physical(name)
            await self.refused(adaptor.create(impossible, self.wanted), REFUSED)
            await self.refused(adaptor.get(impossible), (404, *REFUSED))
            try:
                await adaptor.delete(impossible, OWNER)
            except APIError as error:
                self.assertIn(error.code, REFUSED, error.message)
        self.assertEqual(await self.world.there(), [self.red])
        self.assertEqual(list(await self.listed(adaptor)), [self.red])

    @case
    async def test_parameters(self: Any) -> None:
        """An unknown parameter or an invalid value is refused with the parameter's name"""
        adaptor = self.adaptor()
        for parameters in self.world.no_parameters:
            error = await self.refused(
                adaptor.create(self.red, SpaceRequest(OWNER, parameters)), REFUSED
            )
            self.assertIn(next(iter(parameters)), error.message)
        self.assertEqual(await self.world.there(), [])

    @case
    async def test_no_parents(self: Any) -> None:
        """Provider without parents: a named parent is refused and never replaced by the default"""
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        elsewhere = Physical(self.red.name, "elsewhere")
        await self.refused(adaptor.create(elsewhere, self.wanted), REFUSED)
        await self.refused(adaptor.get(elsewhere), (404, *REFUSED))
        await self.ignored(adaptor.delete(elsewhere, OWNER))
        self.assertEqual(await self.world.there(), [self.red])

    @case
    async def test_parents(self: Any) -> None:
        """Provider with parents: the same name can exist once in each parent, independently"""
        adaptor = self.adaptor()
        places = ["", *self.world.parents]
        physicals = sorted(Physical(self.red.name, place) for place in places)
        infos = [await self.usable(adaptor, physical) for physical in physicals]
        self.assertEqual(sorted(await self.listed(adaptor)), physicals)
        self.assertEqual([info.physical for info in infos], physicals)
        if self.world.uids:
            self.assertEqual(len({info.uid for info in infos}), len(infos))
        await adaptor.delete(physicals[1], OWNER)
        await self.until_gone(adaptor, physicals[1])
        self.assertEqual(sorted(await self.listed(adaptor)), [physicals[0], *physicals[2:]])

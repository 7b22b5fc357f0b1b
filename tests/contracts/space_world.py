"""
What stands behind an adaptor, as the contract of providers needs to act on it.

A world is a provider with its physical spaces: a directory, a server, a program.  It outlives
adaptors: several may be made over one, one after the other or at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import yaml
from twisted.internet import reactor
from twisted.internet.task import deferLater

from twisted_exec.api.kinds import SELFSUBJECTREVIEWS
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import Access, ISpaceProvider, Physical

NAMES = ("red", "green", "blue")

NO_NAMES = (
    "",
    ".",
    "..",
    "a/b",
    "../b",
    "-v",
    "--help",
    "A",
    "a_b",
    "a b",
    "a\nb",
    "a\x00b",
    "é",
    "a" * 300,
)
"""What no provider can call a physical space."""


class SpaceWorld:
    """
    One provider, for one test.

    Whatever a hook does is done when its coroutine ends, so that the very next call of an adaptor
    sees it. A hook that no case needs, because :attr:`cannot` has the cases, need not be there.
    """

    title: ClassVar[str] = ""
    """Of the column in the table of all providers, such as ``kcp, recorded``."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """
    The cases that this provider cannot have by its nature, or this world cannot bring about: the
    case's name (the test's, without ``test_``), and the reason as a sentence for the documentation.
    """

    names: Sequence[str] = NAMES
    """Three names that it can have, in order."""
    no_names: Sequence[str] = NO_NAMES
    parameters: Mapping[str, str] = {}
    """What a physical space is made with."""
    no_parameters: Sequence[Mapping[str, str]] = ({"no-such-parameter": "x"},)
    parents: Sequence[str] = ()
    """Two places besides the default, that are there already; of a provider without any, none."""
    many = 30
    list_calls = 2
    """How many calls a list of any number may cost."""
    uids = True
    """Whether a physical space can be told from an earlier one of its name."""
    hints = True
    """Whether the adaptor hears of changes that others make."""
    seconds = 30.0
    """How long something may take that the provider does by itself."""

    def prepare(self) -> None:
        """Start the programs that all tests share, before the time of the first one runs."""

    async def start(self) -> None:
        """Begin: a provider without any physical space, in working order."""

    async def stop(self) -> None:
        """End all that belongs to it; adaptors are closed already."""

    async def version(self) -> str:
        """Of the program that was tried, for the table; empty where there is none."""
        return ""

    def make(self) -> ISpaceProvider:
        """One more adaptor over this world, with the credentials that are good now."""
        raise NotImplementedError

    async def watching(self, adaptor: ISpaceProvider) -> None:
        """
        Return when an adaptor that is watched has begun to: where it asks now and then, what comes
        and goes in between is nothing that it could tell.
        """

    async def turn(self) -> None:
        """Let a little time pass, in which the provider does what it does by itself."""
        await pause(0.01)

    async def settled(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        """
        Wait until the provider has taken something in.

        :raises AssertionError: it has not within :attr:`seconds`.
        """
        deadline = reactor.seconds() + self.seconds  # type: ignore[attr-defined]
        while not await true():
            if reactor.seconds() > deadline:  # type: ignore[attr-defined]
                raise AssertionError(f"{what}: not in {self.seconds:.0f} s")
            await pause(0.1)

    # What others do.

    async def make_foreign(self, physical: Physical) -> None:
        """Somebody else makes a physical space, without our mark."""
        raise NotImplementedError

    async def vanish(self, physical: Physical) -> None:
        """Somebody else deletes it; it is gone wholly."""
        raise NotImplementedError

    async def there(self) -> Sequence[Physical]:
        """What physical spaces there are in truth, or parts of any, asked without an adaptor; in order."""
        raise NotImplementedError

    async def wreck(self, physical: Physical) -> None:
        """Break it so that it will not mend by itself."""
        raise NotImplementedError

    # How it goes on by itself.

    async def hold(self) -> None:
        """From now on, what is made is listed and does not become usable."""
        raise NotImplementedError

    async def release(self) -> None:
        """What is held goes on."""
        raise NotImplementedError

    async def hide_access(self, physical: Physical) -> None:
        """What holds its kubeconfigs is not there (a Secret that is yet to be made)."""
        raise NotImplementedError

    async def show_access(self, physical: Physical) -> None:
        """Now it is."""
        raise NotImplementedError

    async def only(self, physical: Physical, viewpoint: str) -> None:
        """There is a kubeconfig for one viewpoint only."""
        raise NotImplementedError

    # The way to the provider.

    async def break_down(self) -> None:
        """It cannot be reached: not by adaptors that there are, nor by new ones."""
        raise NotImplementedError

    async def come_back(self) -> None:
        """It can be, with all that it had."""
        raise NotImplementedError

    async def stall(self) -> None:
        """It takes calls and never answers; ends with :meth:`come_back`."""
        raise NotImplementedError

    async def talk_nonsense(self) -> None:
        """It answers, and not as such a provider does; ends with :meth:`come_back`."""
        raise NotImplementedError

    async def revoke(self) -> None:
        """The provider's credentials are not good any more, for adaptors that there are and new ones."""
        raise NotImplementedError

    async def forbid(self) -> None:
        """The provider knows who we are, and allows nothing any more."""
        raise NotImplementedError

    async def renew(self) -> None:
        """There are new credentials: an adaptor that is made now has them."""
        raise NotImplementedError

    # CallMetrics.

    def calls(self) -> int:
        """How many calls the provider has had (requests, runs of its program); ever growing."""
        raise NotImplementedError

    def left(self) -> Sequence[str]:
        """What adaptors have running here just now (processes, connections in use, files half written)."""
        raise NotImplementedError

    async def die_after(self, steps: int) -> None:
        """
        Whatever adaptors do from now on has an effect for so many steps and none after that, as if
        their manager had been killed there.  A step is the smallest change that another process
        could see: a request that writes, a run of a program, a file that is written; to read is
        none.  Calls may fail then, or never end.
        """
        raise NotImplementedError

    def died(self) -> bool:
        """Whether a step was held back since."""
        raise NotImplementedError

    async def live(self) -> None:
        """
        The manager is there again: what is done from now on has its effect; what was held back
        never has.
        """
        raise NotImplementedError

    # Access.

    async def works(self, access: Access, viewpoint: str) -> None:
        """Use it; fails when it does not open its physical space."""
        await who_am_i(access.kubeconfig)


async def pause(seconds: float) -> None:
    """Let the reactor run for so long."""
    await deferLater(reactor, seconds)  # type: ignore[arg-type]


async def who_am_i(kubeconfig: bytes) -> str:
    """
    The name that an API server knows the user of a kubeconfig by.

    :raises APIError: it does not let it in, or cannot be reached.
    """
    client = KubeClient(load_inline(kubeconfig, "the access"), reactor, timeout_seconds=10)
    try:
        resource = SELFSUBJECTREVIEWS.resource
        review = {"apiVersion": resource.api_version, "kind": resource.kind}
        told = await client.create(resource, review)
        return str(told["status"]["userInfo"]["username"])
    finally:
        await client.close()


def secrets_of(kubeconfig: bytes) -> list[str]:
    """Whatever in it nobody else may see."""
    users = [user["user"] for user in parts_of(kubeconfig)["users"]]
    keys = ("token", "password", "client-key-data")
    return [str(user[key]) for user in users for key in keys if user.get(key)]


def parts_of(kubeconfig: bytes) -> dict[str, Any]:
    """A kubeconfig as data; the members that hold lists are lists."""
    found = yaml.safe_load(kubeconfig)
    return {"clusters": [], "users": [], "contexts": [], **found}

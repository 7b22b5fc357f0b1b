"""
The provider behind an adaptor, with the actions that the provider contract needs.

A world is one provider with its physical spaces: a directory, a server, a program. It outlives
adaptors: several adaptors may use one world, in turn or at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import yaml
from twisted.internet import reactor
from twisted.internet.task import deferLater

from tests.chain import PATIENCE_SECONDS
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
"""Names that no provider accepts for a physical space."""


class SpaceWorld:
    """
    One provider, for one test.

    The effect of a hook is complete when its coroutine ends, so the next call of an adaptor sees
    it. Hooks needed only by cases in :attr:`cannot` need not be implemented.
    """

    title: ClassVar[str] = ""
    """Column title in the table of all providers, such as ``kcp, recorded``."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """
    Cases that this provider does not support or this world cannot cause: the name of the case (the
    test's, without ``test_``), and the reason as a sentence for the documentation.
    """

    names: Sequence[str] = NAMES
    """Three valid names; the contract calls them red, green and blue."""
    no_names: Sequence[str] = NO_NAMES
    parameters: Mapping[str, str] = {}
    """Parameters for creating a physical space."""
    no_parameters: Sequence[Mapping[str, str]] = ({"no-such-parameter": "x"},)
    parents: Sequence[str] = ()
    """Two existing parents besides the default; empty for a provider without parents."""
    many = 30
    list_calls = 2
    """The most calls that a list may take, whatever its length."""
    uids = True
    """Whether a physical space has another UID than an earlier one of the same name."""
    hints = True
    """Whether the adaptor's watchers learn of changes made by others."""
    seconds = 300.0
    """How long the provider's own work may take."""

    def prepare(self) -> None:
        """Start the programs that all tests share, before the first test's timeout begins."""

    async def start(self) -> None:
        """Start the provider in working order, without any physical space."""

    async def stop(self) -> None:
        """Stop the provider; its adaptors are closed already."""

    async def version(self) -> str:
        """Version of the provider's program, for the table; empty if there is none."""
        return ""

    def make(self) -> ISpaceProvider:
        """Create another adaptor for this world, with the credentials that are valid now."""
        raise NotImplementedError

    async def watching(self, adaptor: ISpaceProvider) -> None:
        """
        Return once a watched adaptor has taken its first look; a polling adaptor misses changes
        before that and between two polls.
        """

    async def turn(self) -> None:
        """Let a little time pass for the provider's own work."""
        await pause(0.01)  # wait: callers look again after it

    async def settled(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        """
        Wait until ``true()`` holds.

        :raises AssertionError: it does not within :attr:`seconds`.
        """
        deadline = reactor.seconds() + self.seconds  # type: ignore[attr-defined]
        while not await true():
            if reactor.seconds() > deadline:  # type: ignore[attr-defined]
                raise AssertionError(f"{what}: not in {self.seconds:.0f} s")
            await pause(0.1)

    # Actions of others.

    async def make_foreign(self, physical: Physical) -> None:
        """Create a physical space as another user, without our mark."""
        raise NotImplementedError

    async def vanish(self, physical: Physical) -> None:
        """Delete a physical space completely, as another user."""
        raise NotImplementedError

    async def there(self) -> Sequence[Physical]:
        """List physical spaces, also incomplete ones, without an adaptor; sorted."""
        raise NotImplementedError

    async def wreck(self, physical: Physical) -> None:
        """Break a physical space so that it does not recover by itself."""
        raise NotImplementedError

    # Progress of the provider.

    async def hold(self) -> None:
        """Keep new physical spaces listed but not usable, until :meth:`release`."""
        raise NotImplementedError

    async def release(self) -> None:
        """Let held physical spaces become usable."""
        raise NotImplementedError

    async def hide_access(self, physical: Physical) -> None:
        """Hide the source of a space's kubeconfigs, such as a Secret that is not created yet."""
        raise NotImplementedError

    async def show_access(self, physical: Physical) -> None:
        """Undo :meth:`hide_access`."""
        raise NotImplementedError

    async def only(self, physical: Physical, viewpoint: str) -> None:
        """Leave a physical space a kubeconfig for one viewpoint only."""
        raise NotImplementedError

    # Connection to the provider.

    async def break_down(self) -> None:
        """Make the provider unreachable, for existing and new adaptors."""
        raise NotImplementedError

    async def come_back(self) -> None:
        """Make the provider work again, with all its data."""
        raise NotImplementedError

    async def stall(self) -> None:
        """Make the provider accept calls without answering, until :meth:`come_back`."""
        raise NotImplementedError

    async def talk_nonsense(self) -> None:
        """Make the provider send invalid answers, until :meth:`come_back`."""
        raise NotImplementedError

    async def revoke(self) -> None:
        """Invalidate the provider's credentials, for existing and new adaptors."""
        raise NotImplementedError

    async def forbid(self) -> None:
        """Withdraw all permissions from valid credentials."""
        raise NotImplementedError

    async def renew(self) -> None:
        """Issue new credentials; adaptors created later use them."""
        raise NotImplementedError

    # Call counts and leftovers.

    def calls(self) -> int:
        """Total number of calls to the provider (requests, runs of its program)."""
        raise NotImplementedError

    def left(self) -> Sequence[str]:
        """Local resources that adaptors use now (processes, busy connections, unfinished files)."""
        raise NotImplementedError

    async def die_after(self, steps: int) -> None:
        """
        Let the adaptors' next ``steps`` steps take effect and no later ones, as if their manager
        had been killed. A step is the smallest change visible to another process: a write request,
        a run of a program, a written file; reads do not count. Later calls may fail or never end.
        """
        raise NotImplementedError

    def died(self) -> bool:
        """Whether a step was suppressed since :meth:`die_after`."""
        raise NotImplementedError

    async def live(self) -> None:
        """
        End :meth:`die_after`: later steps take effect, suppressed steps never do.
        """
        raise NotImplementedError

    # Access.

    async def works(self, access: Access, viewpoint: str) -> None:
        """Use a kubeconfig; fail if it does not open its physical space."""
        await who_am_i(access.kubeconfig)


async def pause(seconds: float) -> None:
    """Let the reactor run for this long."""
    await deferLater(reactor, seconds)  # type: ignore[arg-type]


async def who_am_i(kubeconfig: bytes) -> str:
    """
    Return the user name that an API server reports for a kubeconfig.

    :raises APIError: the server refuses the user, or cannot be reached.
    """
    client = KubeClient(
        load_inline(kubeconfig, "the access"), reactor, timeout_seconds=PATIENCE_SECONDS
    )
    try:
        resource = SELFSUBJECTREVIEWS.resource
        review = {"apiVersion": resource.api_version, "kind": resource.kind}
        told = await client.create(resource, review)
        return str(told["status"]["userInfo"]["username"])
    finally:
        await client.close()


def secrets_of(kubeconfig: bytes) -> list[str]:
    """Return the secret values in a kubeconfig."""
    users = [user["user"] for user in parts_of(kubeconfig)["users"]]
    keys = ("token", "password", "client-key-data")
    return [str(user[key]) for user in users for key in keys if user.get(key)]


def parts_of(kubeconfig: bytes) -> dict[str, Any]:
    """Return a kubeconfig as data; absent lists are empty lists."""
    found = yaml.safe_load(kubeconfig)
    return {"clusters": [], "users": [], "contexts": [], **found}

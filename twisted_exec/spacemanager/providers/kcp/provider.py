"""
Workspaces of a kcp server as physical spaces.

All that is needed is the provider's kubeconfig, for a user who may make Workspaces in the parents that are used
and is administrator within them: kcp's own ``kcp-admin``, or anybody in group ``system:kcp:admin``.  No rights
over shards are wanted: Workspaces are listed and watched in each parent, which is where the kubeconfig leads
(``root``), what the Secret names besides, and wherever a Space was made or looked for.

kcp answers 403 for a path that is not there.  Whether it is not there, or we may not see it, is found out by
asking for its own Workspace, further up.

Whoever uses a workspace gets a token of an account of ours within it (:mod:`.accounts`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import SERVICEACCOUNTS, TOKENREVIEWS
from twisted_exec.api.spaces import KUBECONFIG_KEY, MANAGER, PATH, SPACES, namespace_of
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
)
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spacemanager.interfaces import (
    USABLE,
    Access,
    IRotatesCredentials,
    ISpaceProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.common.accounts import (
    Token,
    Tokens,
    account_name,
    ensure_account,
    request_token,
)
from twisted_exec.spacemanager.providers.common.calls import CoroutineProvider
from twisted_exec.spacemanager.providers.common.cluster import MAX_LIST_BYTES, ProviderCluster
from twisted_exec.spacemanager.providers.common.hints import Changed, unmanaged
from twisted_exec.spacemanager.providers.common.objects import owner_of
from twisted_exec.spacemanager.providers.kcp.config import (
    KcpSettings,
    is_name,
    kcp_settings,
    workspace_server,
)
from twisted_exec.spacemanager.providers.kcp.hints import WorkspaceHints
from twisted_exec.spacemanager.providers.kcp.workspaces import (
    GROUP,
    check_name,
    is_going,
    seen,
    within,
    workspace,
    workspaces,
)
from twisted_exec.spacemanager.spaces import naming

NO_CREDENTIALS = "NoCredentials"

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Opened:
    """
    What a token is for.

    :param path: of the workspace.
    :param cluster: where the account is: the name of the logical cluster, which is given only once.
    """

    path: str
    cluster: str


async def _nothing_found() -> Sequence[Physical]:
    return ()


@implementer(ISpaceProvider, IRotatesCredentials)
class KcpProvider(CoroutineProvider):
    """
    Parameters of what is made are ``type`` and ``typePath``.  Lists are without access; a rotated token is good until
    its end.

    :param client: of the kcp server; resources say in which workspace they are.
    :param clock: provides ``IReactorTime``.
    :param now: seconds since the epoch.
    :param found: what was found before, asked for before the first list: their parents are to be listed.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        settings: KcpSettings,
        client: IKubeClient,
        clock: Any,
        now: Callable[[], float],
        found: Callable[[], Awaitable[Sequence[Physical]]] = _nothing_found,
    ) -> None:
        self.default_parent = settings.default_parent
        self._settings, self._client, self._now = settings, client, now
        self._here = f"kcp {settings.config.server}"
        remedy = (
            "kcp-admin has another token after each start of kcp, so put a kubeconfig into secret"
            f' {spec.secret_ref}, key "{KUBECONFIG_KEY}"'
        )
        self._kcp = ProviderCluster(client, self._here, remedy)
        self._account = account_name(spec.name)
        self._tokens = Tokens(self._asked_token, now)
        self._hints = WorkspaceHints(client, clock, self._due)
        self._parents: set[str] = set()
        self._reviews_tell = True
        self._found_before: Callable[[], Awaitable[Sequence[Physical]]] | None = found
        self._configured = (settings.default_parent, *settings.parents)
        for parent in self._configured:
            self._remember(parent)

    def rotate(self, physical: Physical) -> Deferred[None]:
        """See :meth:`IRotatesCredentials.rotate`: another token; the one before is good until its end."""
        return Deferred.fromCoroutine(self._rotate(physical))

    def watch(self, changed: Changed) -> Callable[[], None]:
        """See :meth:`ISpaceProvider.watch`."""
        return self._hints.add(changed)

    def close(self) -> Deferred[None]:
        """See :meth:`ISpaceProvider.close`."""
        ended = self._hints.close()
        if isinstance(self._client, KubeClient):
            closing = self._client.close()
            ended.addCallback(lambda _done: closing)
        return ended

    # What is there.

    async def _list_spaces(self) -> Sequence[SpaceInfo]:
        if self._found_before is not None:
            # A list without them would say that they are gone.
            for physical in await self._found_before():
                if physical.parent:
                    self._remember(physical.parent)
            self._found_before = None
        found: list[tuple[SpaceInfo, Object]] = []
        for parent in sorted(self._parents):
            shown = self._shown(parent)
            for each in await self._children(parent):
                info = seen(each, Physical(each["metadata"]["name"], shown))
                found.append((info, each))
        self._tokens.keep_only(
            {_opened(each, self._full_path(info.physical)) for info, each in found}
        )
        return sorted(
            (self._stamped(info, each) for info, each in found), key=lambda info: info.physical
        )

    async def _children(self, parent: str) -> Sequence[Object]:
        try:
            return await self._kcp.list(workspaces(parent), trim=unmanaged)
        except APIError as refused:
            if refused.code != Forbidden.code or not await self._is_absent(parent):
                raise
            self._forget(parent)
            return ()

    async def _get(self, physical: Physical) -> SpaceInfo:
        found = await self._found(physical)
        if found is None:
            raise NotFound("workspaces", self._full_path(physical), GROUP)
        info = seen(found, physical)
        if info.state != USABLE:
            return info
        opened = _opened(found, self._full_path(physical))
        try:
            token = await self._good_token(opened)
        except APIError as refused:
            if refused.code == Unauthorized.code:
                raise
            told = f"no token of an account in it is to be had: {refused.message}"
            return replace(info, reason=NO_CREDENTIALS, message=told)
        return replace(self._stamped(info, found), access=self._access(physical, token))

    async def _found(self, physical: Physical) -> Object | None:
        """The Workspace, ``None`` when it is not there."""
        parent = self._parent(physical)
        try:
            found = await self._kcp.find(workspaces(parent), physical.name)
        except APIError as refused:
            if refused.code != Forbidden.code or not await self._is_absent(parent):
                raise
            return None
        self._remember(parent)
        return found

    async def _is_absent(self, path: str) -> bool:
        """
        Whether a workspace that nothing may be seen of is not there.

        :return: ``False`` as well when that cannot be told.
        """
        parent, _colon, name = path.rpartition(":")
        if not parent:
            return False
        try:
            return await self._kcp.find(workspaces(parent), name) is None
        except APIError as refused:
            if refused.code != Forbidden.code:
                raise
            return await self._is_absent(parent)

    # What is done.

    async def _create(self, physical: Physical, wanted: SpaceRequest) -> None:
        parent = self._parent(physical)
        obj = workspace(physical.name, wanted)
        try:
            made = await self._do(self._client.create(workspaces(parent), obj), physical)
        except AlreadyExists:
            await self._check_ours(physical, wanted.owner)
            return
        except APIError as refused:
            raise await self._why_not_made(physical, refused) from None
        if (made.get("metadata") or {}).get("name") != physical.name:
            raise BadGateway(f"{self._here}: what answers for Workspaces is no API server")
        self._remember(parent)

    async def _do(self, asking: Awaitable[_T], physical: Physical) -> _T:
        """What came of a change of one Workspace."""
        resource = workspaces(self._parent(physical))
        return await self._kcp.do(asking, resource, physical.name)

    async def _check_ours(self, physical: Physical, owner: str) -> None:
        found = await self._found(physical)
        path = self._full_path(physical)
        if found is None or (is_going(found) and owner_of(found) == owner):
            raise Conflict(f'workspace "{path}" is being deleted; it can be made when it is gone')
        if owner_of(found) != owner:
            raise AlreadyExists("workspaces", path, GROUP)

    async def _why_not_made(self, physical: Physical, refused: APIError) -> APIError:
        parent = self._parent(physical)
        if refused.code != Forbidden.code:
            return refused
        if await self._is_absent(parent):
            told = f'workspace "{parent}" is not there, so none can be made in it; make it first'
            return NotFound("workspaces", parent, GROUP, told)
        if "workspace type" in refused.message:  # kcp says 403 of a type that is not there
            return BadRequest(
                f'workspace "{self._full_path(physical)}" cannot be made: {refused.message}; see'
                " spec.parameters of the Space: type and typePath"
            )
        return refused

    async def _delete(self, physical: Physical, owner: str) -> None:
        found = await self._found(physical)
        if found is None:
            return
        path = self._full_path(physical)
        if owner_of(found) != owner or not owner:
            raise Conflict(
                f'workspace "{path}" does not bear the mark of this Space, so it is not deleted; delete it by'
                " kubectl if it is to go"
            )
        if found["metadata"].get("deletionTimestamp"):
            return
        uid = str(found["metadata"].get("uid") or "")
        workspaces_there = workspaces(self._parent(physical))
        try:
            deleting = self._client.delete(workspaces_there, physical.name, uid=uid)
            await self._do(deleting, physical)
        except NotFound:
            pass

    async def _rotate(self, physical: Physical) -> None:
        found = await self._found(physical)
        path = self._full_path(physical)
        if found is None:
            raise NotFound("workspaces", path, GROUP)
        info = seen(found, physical)
        if info.state != USABLE:
            raise Conflict(f'workspace "{path}" is {info.state}; rotate when it is {USABLE}')
        await self._in_it(self._tokens.renewed(_opened(found, path)))

    # Tokens.

    async def _good_token(self, opened: _Opened) -> Token:
        """One that was not taken back meanwhile, by deleting its account."""
        kept = self._tokens.kept(opened)
        if kept is None or not self._reviews_tell or not await self._is_refused(opened, kept):
            return await self._in_it(self._tokens.current(opened))
        token = await self._in_it(self._tokens.renewed(opened))
        if await self._is_refused(opened, token):
            # One that was granted just now: so reviews say nothing here, and would have us ask for ever.
            self._reviews_tell = False
        return token

    async def _is_refused(self, opened: _Opened, token: Token) -> bool:
        resource = TOKENREVIEWS.resource
        review = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "spec": {"token": token.secret},
        }
        try:
            asking = self._client.create(within(opened.cluster, resource), review)
            told = await self._in_it(asking)
        except APIError as refused:
            if refused.code == Unauthorized.code:
                raise
            return False  # nobody could look
        status = told.get("status")
        return isinstance(status, dict) and not status.get("authenticated")

    async def _in_it(self, asking: Awaitable[_T]) -> _T:
        """What came of something that was asked of a workspace itself."""
        return await self._kcp.do(asking, SERVICEACCOUNTS.resource, self._account)

    async def _asked_token(self, what: Hashable) -> Token:
        assert isinstance(what, _Opened)
        cluster = what.cluster
        await ensure_account(
            self._client, self._account, lambda resource: within(cluster, resource)
        )
        return await request_token(
            self._client, self._account, lambda resource: within(cluster, resource), self._now
        )

    def _due(self) -> list[Physical]:
        return [
            self._physical(each.path) for each in self._tokens.due() if isinstance(each, _Opened)
        ]

    def _stamped(self, info: SpaceInfo, found: Object) -> SpaceInfo:
        """Its version tells of credentials, too."""
        if info.state != USABLE:
            return info
        stamp = self._tokens.stamp(_opened(found, self._full_path(info.physical)))
        return replace(info, version=f"{info.version}.{stamp}")

    def _access(self, physical: Physical, token: Token) -> dict[str, Access]:
        return {
            viewpoint: Access(self._kubeconfig(physical, config, token), token.expires)
            for viewpoint, config in self._settings.viewpoints.items()
        }

    def _kubeconfig(self, physical: Physical, config: ClientConfig, token: Token) -> bytes:
        path = self._full_path(physical)
        server = workspace_server(config.server, path)
        return written(replace(config, server=server, token=token.secret), path)

    # Places.

    def _parent(self, physical: Physical) -> str:
        """:raises Invalid: it can be no workspace, or its place is called what it is not called in lists."""
        check_name(physical)
        if physical.parent == self.default_parent:
            told = f'leave {PATH} out: "{physical.parent}" is where workspaces are without it'
            causes = [{"field": "metadata.annotations", "message": told}]
            raise Invalid("workspaces", str(physical), causes, GROUP)
        return physical.parent or self.default_parent

    def _shown(self, parent: str) -> str:
        return "" if parent == self.default_parent else parent

    def _physical(self, path: str) -> Physical:
        parent, _colon, name = path.rpartition(":")
        return Physical(name, self._shown(parent))

    def _full_path(self, physical: Physical) -> str:
        return f"{physical.parent or self.default_parent}:{physical.name}"

    def _remember(self, parent: str) -> None:
        self._parents.add(parent)
        self._hints.follow(parent, self._shown(parent))

    def _forget(self, parent: str) -> None:
        """It is not there.  One that is configured may come; any other will be heard of when it is."""
        if parent not in self._configured:
            self._hints.forget(parent)
            self._parents.discard(parent)


def _opened(found: Object, path: str) -> _Opened:
    """Of a mount there is no logical cluster: what is mounted is asked for by its path."""
    cluster = str((found.get("spec") or {}).get("cluster") or "")
    # It becomes a part of a URL, at which we have an account of ours made.
    return _Opened(path, cluster if is_name(cluster) else path)


def make(spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
    """See :data:`~twisted_exec.spacemanager.interfaces.MakeProvider`."""
    told = kcp_settings(spec)
    client = KubeClient(told.config, around.reactor, agent=MANAGER, list_bytes=MAX_LIST_BYTES)

    async def found() -> Sequence[Physical]:
        listed = await around.hub.list(SPACES, namespace_of(spec.name))
        return [naming.physical_of(each) for each in listed["items"] if naming.was_found(each)]

    return KcpProvider(spec, told, client, around.reactor, around.now, found)

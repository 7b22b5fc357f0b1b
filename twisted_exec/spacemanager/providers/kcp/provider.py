"""
Workspaces of a kcp server as physical spaces.

The provider requires a kubeconfig of a user who may create Workspaces in the used parents and is an
administrator in them: kcp's ``kcp-admin``, or another member of the group ``system:kcp:admin``.

kcp answers 403 for paths that do not exist.  A request for the Workspace of the path, in its own
parent, tells whether it is absent or only invisible to us.

Users of a workspace get a token of our account in it
(:mod:`twisted_exec.spacemanager.providers.credentials`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
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
from twisted_exec.kube.client import MAX_LIST_BYTES, KubeClient
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.program.tasks import as_deferred
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
from twisted_exec.spacemanager.providers.base import Changed, CoroutineProvider, unmanaged
from twisted_exec.spacemanager.providers.cluster import ProviderCluster, owner_of
from twisted_exec.spacemanager.providers.credentials import (
    CachedTokens,
    Token,
    account_name,
    ensure_account,
    request_token,
)
from twisted_exec.spacemanager.providers.kcp.hints import WorkspaceHints
from twisted_exec.spacemanager.providers.kcp.settings import (
    KcpSettings,
    is_name,
    kcp_settings,
    workspace_server,
)
from twisted_exec.spacemanager.providers.kcp.workspaces import (
    GROUP,
    WORKSPACE_TYPES,
    check_name,
    is_going,
    space_info,
    within,
    workspace,
    workspaces,
)
from twisted_exec.spacemanager.spaces import naming

NO_CREDENTIALS = "NoCredentials"

_T = TypeVar("_T")


@dataclass(frozen=True)
class _TokenKey:
    """:param cluster: name of the logical cluster with the account; *path* if it has none."""

    path: str
    cluster: str


async def _nothing_found() -> Sequence[Physical]:
    return ()


@implementer(ISpaceProvider, IRotatesCredentials)
class KcpProvider(CoroutineProvider):
    """
    See :class:`ISpaceProvider`; parameters are ``type`` and ``typePath``.

    :param client: client of the kcp server; resources include the path of the workspace.
    :param known: returns physical spaces whose parents the first list includes.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        settings: KcpSettings,
        client: IKubeClient,
        clock: IReactorTime,
        now: Callable[[], float],
        known: Callable[[], Awaitable[Sequence[Physical]]] = _nothing_found,
    ) -> None:
        self.default_parent = settings.default_parent
        self._settings, self._client, self._now = settings, client, now
        self._here = f"kcp {settings.config.server}"
        remedy = (
            "kcp-admin has a new token after each start of kcp, so put a new kubeconfig into secret"
            f' {spec.secret_ref}, key "{KUBECONFIG_KEY}"'
        )
        self._kcp = ProviderCluster(client, self._here, remedy)
        self._account = account_name(spec.name)
        self._tokens = CachedTokens(self._request_token, now)
        self._hints = WorkspaceHints(client, clock, self._due)
        self._parents: set[str] = set()
        self._reviews_work = True
        self._found_before: Callable[[], Awaitable[Sequence[Physical]]] | None = known
        self._configured = (settings.default_parent, *settings.parents)
        for parent in self._configured:
            self._remember(parent)

    @as_deferred
    async def rotate(self, physical: Physical) -> None:
        obj = await self._find(physical)
        path = self._full_path(physical)
        if obj is None:
            raise NotFound("workspaces", path, GROUP)
        info = space_info(obj, physical)
        if info.state != USABLE:
            raise Conflict(
                f'workspace "{path}" is {info.state}; rotate its credentials when it is {USABLE}'
            )
        await self._do_in_workspace(self._tokens.renewed(_token_key(obj, path)))

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._hints.add(changed)

    def close(self) -> Deferred[None]:
        ended = self._hints.close()
        if isinstance(self._client, KubeClient):
            closing = self._client.close()
            ended.addCallback(lambda _done: closing)
        return ended

    # Observing.

    async def _list_spaces(self) -> Sequence[SpaceInfo]:
        if self._found_before is not None:
            # Without these parents the list would report their spaces as gone.
            for physical in await self._found_before():
                if physical.parent:
                    self._remember(physical.parent)
            self._found_before = None
        pairs: list[tuple[SpaceInfo, Object]] = []
        for parent in sorted(self._parents):
            parent_name = self._unless_default(parent)
            for each in await self._children(parent):
                info = space_info(each, Physical(each["metadata"]["name"], parent_name))
                pairs.append((info, each))
        self._tokens.keep_only(
            {_token_key(each, self._full_path(info.physical)) for info, each in pairs}
        )
        return sorted(
            (self._stamped(info, each) for info, each in pairs), key=lambda info: info.physical
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
        obj = await self._find(physical)
        if obj is None:
            raise NotFound("workspaces", self._full_path(physical), GROUP)
        info = space_info(obj, physical)
        if info.state != USABLE:
            return info
        key = _token_key(obj, self._full_path(physical))
        try:
            token = await self._good_token(key)
        except APIError as refused:
            if refused.code == Unauthorized.code:
                raise
            message = f"no token of a ServiceAccount in it can be requested: {refused.message}"
            return replace(info, reason=NO_CREDENTIALS, message=message)
        return replace(self._stamped(info, obj), access=self._access(physical, token))

    async def _find(self, physical: Physical) -> Object | None:
        parent = self._parent(physical)
        try:
            obj = await self._kcp.find(workspaces(parent), physical.name)
        except APIError as refused:
            if refused.code != Forbidden.code or not await self._is_absent(parent):
                raise
            return None
        self._remember(parent)
        return obj

    async def _is_absent(self, path: str) -> bool:
        """Return whether a forbidden workspace does not exist; ``False`` if that is unknown."""
        parent, _colon, name = path.rpartition(":")
        if not parent:
            return False
        try:
            return await self._kcp.find(workspaces(parent), name) is None
        except APIError as refused:
            if refused.code != Forbidden.code:
                raise
            return await self._is_absent(parent)

    # Changing.

    async def _create(self, physical: Physical, request: SpaceRequest) -> None:
        parent = self._parent(physical)
        obj = workspace(physical.name, request)
        try:
            answer = await self._do(self._client.create(workspaces(parent), obj), physical)
        except AlreadyExists:
            await self._check_ours(physical, request.owner)
            return
        except APIError as refused:
            raise await self._create_error(physical, refused) from None
        if (answer.get("metadata") or {}).get("name") != physical.name:
            raise BadGateway(
                f"{self._here}: the answer to a create is not a Workspace; check that the server is kcp"
            )
        self._remember(parent)

    async def _do(self, request: Awaitable[_T], physical: Physical) -> _T:
        resource = workspaces(self._parent(physical))
        return await self._kcp.do(request, resource, physical.name)

    async def _check_ours(self, physical: Physical, owner: str) -> None:
        obj = await self._find(physical)
        path = self._full_path(physical)
        if obj is None or (is_going(obj) and owner_of(obj) == owner):
            raise Conflict(
                f'workspace "{path}" is being deleted; it can be created when it is gone'
            )
        if owner_of(obj) != owner:
            raise AlreadyExists("workspaces", path, GROUP)

    async def _create_error(self, physical: Physical, refused: APIError) -> APIError:
        parent = self._parent(physical)
        if refused.code != Forbidden.code:
            return refused
        if await self._is_absent(parent):
            message = f'workspace "{parent}" does not exist, so nothing can be created in it; create it first'
            return NotFound("workspaces", parent, GROUP, message)
        # kcp answers 403 for types that do not exist, with one of two texts.
        if "workspace type" in refused.message or WORKSPACE_TYPES in refused.message:
            return BadRequest(
                f'workspace "{self._full_path(physical)}" cannot be created: {refused.message}; see'
                " spec.parameters of the Space: type and typePath"
            )
        return refused

    async def _delete(self, physical: Physical, owner: str) -> None:
        obj = await self._find(physical)
        if obj is None:
            return
        path = self._full_path(physical)
        if owner_of(obj) != owner or not owner:
            raise Conflict(
                f'workspace "{path}" was not created for this Space, so it is not deleted; delete it with'
                " kubectl if it should go"
            )
        if obj["metadata"].get("deletionTimestamp"):
            return
        uid = str(obj["metadata"].get("uid") or "")
        resource = workspaces(self._parent(physical))
        try:
            deleting = self._client.delete(resource, physical.name, uid=uid)
            await self._do(deleting, physical)
        except NotFound:
            pass

    # Tokens.

    async def _good_token(self, key: _TokenKey) -> Token:
        cached = self._tokens.cached(key)
        if cached is None or not self._reviews_work or not await self._is_refused(key, cached):
            return await self._do_in_workspace(self._tokens.current(key))
        token = await self._do_in_workspace(self._tokens.renewed(key))
        if await self._is_refused(key, token):
            # The token was granted just now, so reviews do not work here, and would cause endless requests.
            self._reviews_work = False
        return token

    async def _is_refused(self, key: _TokenKey, token: Token) -> bool:
        resource = TOKENREVIEWS.resource
        review = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "spec": {"token": token.secret},
        }
        try:
            creating = self._client.create(within(key.cluster, resource), review)
            answer = await self._do_in_workspace(creating)
        except APIError as refused:
            if refused.code == Unauthorized.code:
                raise
            return False  # unknown
        status = answer.get("status")
        return isinstance(status, dict) and not status.get("authenticated")

    async def _do_in_workspace(self, request: Awaitable[_T]) -> _T:
        return await self._kcp.do(request, SERVICEACCOUNTS.resource, self._account)

    async def _request_token(self, key: Hashable) -> Token:
        assert isinstance(key, _TokenKey)
        cluster = key.cluster
        await ensure_account(
            self._client, self._account, lambda resource: within(cluster, resource)
        )
        return await request_token(
            self._client, self._account, lambda resource: within(cluster, resource), self._now
        )

    def _due(self) -> list[Physical]:
        return [
            self._physical(each.path) for each in self._tokens.due() if isinstance(each, _TokenKey)
        ]

    def _stamped(self, info: SpaceInfo, obj: Object) -> SpaceInfo:
        if info.state != USABLE:
            return info
        stamp = self._tokens.stamp(_token_key(obj, self._full_path(info.physical)))
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

    # Paths.

    def _parent(self, physical: Physical) -> str:
        check_name(physical)
        if physical.parent == self.default_parent:
            message = f'omit {PATH}: "{physical.parent}" is its default'
            causes = [{"field": "metadata.annotations", "message": message}]
            raise Invalid("workspaces", str(physical), causes, GROUP)
        return physical.parent or self.default_parent

    def _unless_default(self, parent: str) -> str:
        return "" if parent == self.default_parent else parent

    def _physical(self, path: str) -> Physical:
        parent, _colon, name = path.rpartition(":")
        return Physical(name, self._unless_default(parent))

    def _full_path(self, physical: Physical) -> str:
        return f"{physical.parent or self.default_parent}:{physical.name}"

    def _remember(self, parent: str) -> None:
        self._parents.add(parent)
        self._hints.follow(parent, self._unless_default(parent))

    def _forget(self, parent: str) -> None:
        """Drop an absent parent, unless it is configured: it may still be created."""
        if parent not in self._configured:
            self._hints.forget(parent)
            self._parents.discard(parent)


def _token_key(obj: Object, path: str) -> _TokenKey:
    cluster = str((obj.get("spec") or {}).get("cluster") or "")
    # The name becomes part of the URL at which our account is created.
    return _TokenKey(path, cluster if is_name(cluster) else path)


def make(spec: ProviderSpec, context: ProviderContext) -> ISpaceProvider:
    """See :data:`~twisted_exec.spacemanager.interfaces.MakeProvider`."""
    settings = kcp_settings(spec)
    client = KubeClient(settings.config, context.reactor, agent=MANAGER, list_bytes=MAX_LIST_BYTES)

    async def known() -> Sequence[Physical]:
        listed = await context.hub.list(SPACES, namespace_of(spec.name))
        return [naming.physical_of(each) for each in listed["items"] if naming.was_found(each)]

    return KcpProvider(spec, settings, client, context.reactor, context.now, known)

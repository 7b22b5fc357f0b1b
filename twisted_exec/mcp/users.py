"""
The users of the door: tokens for this program alone, and the user that it impersonates.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization, RFC 9728 and RFC 6750.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_exec.api.agents import AGENTS, PERSON_GROUPS, is_agent, person_of
from twisted_exec.api.status import Forbidden, Unauthorized
from twisted_exec.api.users import AUTHENTICATED
from twisted_exec.auth.credentials import NO_HEADERS, presented
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.tokens import ITokenAuthenticator
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
)

_RESERVED = "system:"
_MOST_GROUPS = 64
_NEEDED = "a valid bearer token for this server is needed"


@dataclass(frozen=True)
class Caller:
    """
    The user of a request.

    :param groups: of the user, without that of all users; an agent has that of agents alone.
    :param person_groups: of the agent's person; empty for others.
    :param expires: the end of the token, in seconds since 1970.
    """

    name: str
    groups: tuple[str, ...] = ()
    person_groups: tuple[str, ...] = ()
    expires: float = field(default=math.inf, compare=False)

    @property
    def person(self) -> str:
        """The name of the person for whom the user acts; people themselves act for themselves."""
        return person_of(self.name) or self.name


class Users:
    """
    Authenticates requests.

    :param authenticator: of tokens whose audience is this program.
    """

    def __init__(self, authenticator: ITokenAuthenticator) -> None:
        self._authenticator = authenticator

    async def caller(self, request: Any) -> Caller:
        """
        Return the user of a request.

        :raises Unauthorized: it has no valid token for this program.
        :raises Forbidden: nobody may act as this user.
        """
        token = presented(request, NO_HEADERS).bearer_token()
        if token is None:
            raise Unauthorized(_NEEDED)
        try:
            user = await self._authenticator.authenticate_token(token)
        except Unauthorized:
            user = None
        if user is None:
            raise Unauthorized(
                f"{_NEEDED}, and this one is not: its operator finds the cause in the log"
            )
        return caller_of(user)


def caller_of(user: User) -> Caller:
    """
    Return whom the program impersonates for a user.

    The groups in an agent's token, besides that of agents, are those of its person.

    :raises Forbidden: it is a user or a group of Kubernetes itself, has no plain name, or is half an agent.
    """
    groups = tuple(each for each in user.groups if each != AUTHENTICATED)
    if len(groups) > _MOST_GROUPS:
        raise Forbidden(f"the token has {len(groups)} groups, more than {_MOST_GROUPS}")
    for name in (user.name, *groups):
        if not name.isprintable() or name != name.strip() or not name:
            raise Forbidden("the name of the user, or of a group, is no plain text")
        if name.startswith(_RESERVED):
            raise Forbidden(f'nobody gets a user or a group "{_RESERVED}..." here')
    if not is_agent(user.name):
        if AGENTS in groups:
            raise Forbidden(
                f'the token has the group "{AGENTS}", and the name "{user.name}", which is not that of an agent '
                "(agent:PERSON:NAME): the identity provider must give both or none"
            )
        return Caller(user.name, groups, expires=user.expires)
    if AGENTS not in groups:
        raise Forbidden(
            f'the token has the name of the agent "{user.name}", and not the group "{AGENTS}": the identity provider '
            "must give both or none"
        )
    of_person = tuple(each for each in groups if each != AGENTS)
    return Caller(user.name, (AGENTS,), of_person, user.expires)


class OwnLogin:
    """
    The program's own login at the API server.

    :param current: returns the present configuration.
    :raises KubeConfigError: it has no credentials, or impersonates somebody already.
    """

    def __init__(self, current: Callable[[], ClientConfig]) -> None:
        self._current = current
        config = current()
        if config.needs_plugin or not config.has_credentials:
            raise KubeConfigError(
                f"{config.source} has neither a client certificate nor a token for exec-mcp"
            )
        if config.impersonate:
            raise KubeConfigError(
                f"{config.source} has a user to impersonate: exec-mcp impersonates its own users"
            )

    def acting_as(self, caller: Caller) -> ClientConfig:
        """Return the configuration for requests of a user."""
        of_person = ((PERSON_GROUPS, caller.person_groups),) if caller.person_groups else ()
        user = ImpersonatedUser(caller.name, groups=caller.groups, extra=of_person)
        return replace(self._current(), impersonate=user)

"""Credentials of a server that may come late, or change while the server is in use."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeVar

from twisted.internet.defer import Deferred

from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.kube.kubeconfig.client_config import ClientConfig

T = TypeVar("T")

REFUSAL_CODES = (Unauthorized.code, Forbidden.code)
"""Status codes about the client's identity: unknown, or without the right."""

Reread = Callable[[ClientConfig], Deferred[bool]]
"""
Read the source of credentials again; the argument is the configuration that got a 401.

Fires with whether the configuration differs now, or fails with an
:class:`~twisted_exec.api.status.APIError` if the source cannot be read.
"""


def _nothing() -> None:
    pass


class LateCredentials:
    """
    The credentials of one API server.

    :param label: name of the server in messages, such as ``leaf cluster "one"``.
    :param current: returns the current configuration, or raises ``ServiceUnavailable``.
    :param moved: called when the configuration names another server.
    """

    def __init__(
        self,
        label: str,
        current: Callable[[], ClientConfig],
        *,
        moved: Callable[[], None] = _nothing,
        reread: Reread | None = None,
    ) -> None:
        self._label, self._current, self._moved, self._reread = label, current, moved, reread
        self._server = ""

    def config(self) -> ClientConfig:
        """
        Return the current configuration.

        :raises APIError: there is none.
        """
        config = self._current()
        if config.server != self._server:
            previous, self._server = self._server, config.server
            if previous:
                self._moved()
        return config

    async def attempt(
        self, send: Callable[[], Deferred[T]], may_repeat: Callable[[], bool] = lambda: True
    ) -> T:
        """
        Send a request, and once more after a 401 if the credentials changed.

        A server that answers 401 has not begun the request, so even a write may be repeated.
        """
        config = self.config()
        try:
            return await send()
        except APIError as refused:
            if refused.code not in REFUSAL_CODES:
                raise
            again = refused.code == Unauthorized.code and may_repeat()
            if not (again and await self._reread_changed(config)):
                raise self._explained(refused, config) from None
        config = self.config()
        try:
            return await send()
        except APIError as refused:
            if refused.code not in REFUSAL_CODES:
                raise
            raise self._explained(refused, config) from None

    async def _reread_changed(self, config: ClientConfig) -> bool:
        """Read the credentials again; return whether they have changed."""
        if self._reread is None:
            return False
        try:
            return await self._reread(config)
        except APIError:
            return False  # the server's 401 says more than a failed look at the source

    def _explained(self, refused: APIError, config: ClientConfig) -> APIError:
        # A copy: several requests may share one exception.
        explained = copy(refused)
        explained.message = describe_refusal(refused, self._label, config)
        return explained


def named(refused: APIError, label: str) -> APIError:
    """Return a copy of an error with the server's name."""
    other = copy(refused)
    other.message = f"{label}: {refused.message}"
    return other


def describe_refusal(refused: APIError, label: str, config: ClientConfig) -> str:
    """
    Return the message of a 401 or 403, with the source of the refused credentials and the remedy.
    """
    if refused.code == Forbidden.code:
        problem = "denies the request"
        remedy = "grant the right to the user of that kubeconfig"
    else:
        problem = "rejects the credentials"
        remedy = "replace the credentials there"
    return f"{label} {problem} ({config.source}): {refused.message}; {remedy}"

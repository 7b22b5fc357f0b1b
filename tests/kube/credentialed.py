"""
In-memory clients whose credentials may arrive later, as
:class:`~twisted_exec.kube.client.KubeClient` has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.late_credentials import LateCredentials


@implementer(IKubeClient)
class CredentialedClient:
    """
    Sends each request with the current credentials.

    :param client_of: returns the in-memory client that a configuration leads to.
    """

    def __init__(
        self, credentials: LateCredentials, client_of: Callable[[ClientConfig], Any]
    ) -> None:
        self._credentials, self._client_of = credentials, client_of

    def close(self) -> Deferred[None]:
        """Do nothing: in-memory clients hold no connection."""
        return succeed(None)

    def __getattr__(self, verb: str) -> Callable[..., Deferred[Any]]:
        if verb not in IKubeClient:
            raise AttributeError(verb)

        def request(*args: Any, **options: Any) -> Deferred[Any]:
            opened: list[bool] = []
            if verb == "watch":
                on_open = options.pop("on_open", lambda: None)
                options["on_open"] = lambda: (opened.append(True), on_open())

            def send() -> Deferred[Any]:
                client = self._client_of(self._credentials.config())
                answer: Deferred[Any] = getattr(client, verb)(*args, **options)
                return answer

            return Deferred.fromCoroutine(self._credentials.attempt(send, lambda: not opened))

        return request

"""
Interactive credential plugins, run in the user's terminal before the console opens.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.process import reapAllProcesses
from twisted.internet.task import deferLater

from twisted_exec.cli.console.session import ConsoleSession
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.credentials import settled


def notice_ends(reactor: Any) -> None:
    """Have the reactor notice the ends of plugins, although it runs without signal handlers of its own."""
    signal.signal(signal.SIGCHLD, lambda *_: reactor.callFromThread(reapAllProcesses))


def run_plugin_in_terminal(
    config: ClientConfig,
    reactor: Any,
    session: ConsoleSession,
    *,
    interactive: bool,
    timeout_seconds: float | None,
    then: Callable[[float | None], None],
) -> Deferred[None]:
    """
    Run the plugin of ``config``; its credential is cached for the console's connection.

    :param session: not started yet; a signal that ends it also ends the plugin.
    :param timeout_seconds: of the whole session.
    :param then: called with the remaining time.
    :return: fires after ``then`` or the session's end; fails as
        :func:`~twisted_exec.kube.kubeconfig.credentials.settled`.
    """
    notice_ends(reactor)
    begun = reactor.seconds()
    asking = settled(config, reactor, interactive=interactive)
    session.connecting(asking)
    if timeout_seconds is not None:
        asking.addTimeout(timeout_seconds, reactor)

    async def ask() -> None:
        try:
            await asking
        except TimeoutError:
            session.timed_out()
        except CancelledError:
            pass  # the session is over already
        except KubeConfigError:
            # Ctrl-C goes to the plugin as well, and its end may be noticed before our
            # own signal, which waits for the reactor's next turn.
            await deferLater(reactor, 0)
            raise
        else:
            left = timeout_seconds
            then(None if left is None else max(0.0, left - (reactor.seconds() - begun)))

    return Deferred.fromCoroutine(ask())

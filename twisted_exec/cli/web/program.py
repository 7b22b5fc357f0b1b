"""
The run of ``twisted-exec web``: the credentials, the URL and the end.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.cluster_options import overrides_of
from twisted_exec.cli.console.messages import explain, one_line
from twisted_exec.cli.suggestion import hint_after
from twisted_exec.cli.web.browser import BrowserPage, has_browser
from twisted_exec.cli.web.enter import Enter
from twisted_exec.cli.web.forwarding import AGENT
from twisted_exec.cli.web.login import VALID_SECONDS
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.kube.consoles.exec import opened_among
from twisted_exec.kube.credentials.cache import settled
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.loader import context_name
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.descriptors import raise_descriptor_limit

_CHECK_SECONDS = 5.0


async def serve(options: argparse.Namespace, reactor: Any) -> None:
    """
    Serve the page until the reactor stops.

    :param options: those of the command, and ``among``.
    :raises APIError: the machine does not exist, or the port is not free.
    :raises KubeConfigError: there are no usable credentials.
    """
    context = chosen_context(options)
    reloading = follow_config(options, context)
    config = reloading.current()
    # A plugin may ask the user here, in the terminal, but not later.
    await settled(config, reactor, interactive=sys.stdin.isatty())
    place: dict[str, Any] = {
        "cluster": context if context and not options.server else config.server,
        "namespace": config.namespace,
    }
    if options.machine is not None:
        place["machine"] = await _machine(options, config, reactor)
    raise_descriptor_limit()  # a terminal in the page and its watch have two each
    server = LocalServer(reloading.current, place, reactor)
    await server.listen(options.port)
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(server.close())
    )
    url = server.new_url()
    opens_browser = not options.no_browser and has_browser(os.environ)
    cluster, seconds = one_line(place["cluster"]), f"{VALID_SECONDS:.0f} seconds"
    if opens_browser:
        print(f"The web console of {cluster} opens in your browser; its URL is", flush=True)
    else:
        print(f"To use the web console of {cluster}, open this URL in a browser:", flush=True)
    _show(url)
    print(f"It works once, for {seconds}. Enter shows a new one, Ctrl-C ends.", flush=True)
    enter = Enter(0, lambda: _show(server.new_url()), reactor)
    enter.start()
    reactor.addSystemEventTrigger("before", "shutdown", enter.stop)
    if opens_browser:
        _open_browser(url, reactor)
    await Deferred()  # until the reactor stops


def _show(url: str) -> None:
    print(f"    {url}", flush=True)


def _open_browser(url: str, reactor: Any) -> None:
    page = BrowserPage(url)
    reactor.callLater(VALID_SECONDS, page.remove)
    reactor.addSystemEventTrigger("before", "shutdown", page.remove)
    page.open()


def chosen_context(options: argparse.Namespace) -> str:
    """Return the name of the context; empty without one, as in a Pod or with ``--server``."""
    try:
        return context_name(options.kubeconfig, options.context)
    except KubeConfigError:
        return ""


def follow_config(options: argparse.Namespace, context: str) -> ReloadingConfig:
    """
    Return the configuration that the options select, kept current.

    :param context: its context.  ``kubectl config use-context`` in another terminal must not take an
        open page to another cluster.
    :raises KubeConfigError: it cannot be used.
    """
    return ReloadingConfig(options.kubeconfig, context or None, overrides=overrides_of(options))


async def _machine(
    options: argparse.Namespace, config: ClientConfig, reactor: Any
) -> dict[str, str]:
    """
    Return what the page needs to open the machine.

    :raises NotFound: it does not exist.
    """
    name = options.machine.name
    machine = {"namespace": config.namespace, "name": name}
    client = CommandClient(config, reactor, timeout_seconds=_CHECK_SECONDS, agent=AGENT)

    async def read(_: ClientConfig, dialect: Dialect) -> Dialect:
        await client.get(dialect.workload, name, config.namespace)
        return dialect

    try:
        dialect = await opened_among(read, config, reactor, options.among, _CHECK_SECONDS, None)
    except APIError as refusal:
        if refusal.code != NotFound.code:
            return machine  # the page says why, and goes on when it can
        hint = await hint_after(refusal, config, name, reactor).addErrback(lambda _: "")
        message = explain(refusal, config.namespace) + (f"; {hint}" if hint else "")
        raise APIError(message, code=refusal.code, reason=refusal.reason) from None
    finally:
        await client.close()
    resource = dialect.workload
    return machine | {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
    }

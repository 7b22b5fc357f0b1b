"""
Routes of consoles, logs and screens of machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    Kind,
    machine_kind,
)
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.rules import CONSOLE
from twisted_exec.auth.subresources import EXEC
from twisted_exec.streaming.http.routes import RouteMatch
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay


def console_facts(dialects: Iterable[Dialect]) -> Callable[[RequestTarget], dict[str, str]]:
    """Make a function from a machine of these dialects to the facts of its sessions."""
    by_kind = {machine_kind(dialect).resource: dialect for dialect in dialects}

    def facts(target: RequestTarget) -> dict[str, str]:
        dialect = by_kind[target.kind.resource]
        return {
            "namespace": target.namespace,
            "machine": target.name,
            "resource": dialect.workload.qualified,
            "noun": dialect.noun,
            # A session at the observers' path is one like all others.
            "subresource": EXEC.name if target.subresource == CONSOLE else target.subresource,
        }

    return facts


def add_consoles(routes: GatedRoutes, dialect: Dialect, proxy: Proxy) -> None:
    """
    Add the console routes of one dialect's machines.

    ``DELETE`` ends a session and ``PATCH`` changes its terms, for the caller who opened it.
    """
    kind = machine_kind(dialect)
    for subresource, connect in kind.connects.items():
        path = f"{_item_path(kind)}/{subresource}"
        target = partial(_target_of, kind, subresource)
        facts = console_facts([dialect])
        routes.add_session(connect.methods, path, proxy.handle, target=target, session=facts)
        routes.add(["DELETE"], path, proxy.end, is_open=True)
        routes.add(["PATCH"], path, proxy.limit, is_open=True)


def add_machine_texts(
    routes: GatedRoutes, dialect: Dialect, subresource: str, relay: Relay
) -> None:
    """Add the texts of one dialect's machines, such as logs."""
    kind = machine_kind(dialect)
    _add_texts(routes, kind, subresource, relay, console_facts([dialect]))


def add_retained_texts(routes: GatedRoutes, kind: Kind, subresource: str, relay: Relay) -> None:
    """Add the texts of objects that may outlive their machines."""
    facts = {
        "resource": kind.resource.qualified,
        "noun": kind.singular,
        "subresource": subresource,
    }

    def session(target: RequestTarget) -> dict[str, str]:
        return {"namespace": target.namespace, "machine": target.name, **facts}

    _add_texts(routes, kind, subresource, relay, session)


def _add_texts(
    routes: GatedRoutes,
    kind: Kind,
    subresource: str,
    relay: Relay,
    session: Callable[[RequestTarget], dict[str, str]],
) -> None:
    path, target = f"{_item_path(kind)}/{subresource}", partial(_target_of, kind, subresource)
    routes.add_session(["GET"], path, relay.handle, target=target, session=session)


def _item_path(kind: Kind) -> str:
    return f"{root_of(kind)}/namespaces/{{namespace}}/{kind.resource.plural}/{{name}}"


def _target_of(kind: Kind, subresource: str, match: RouteMatch[Any]) -> RequestTarget:
    return RequestTarget(kind, match.values["namespace"], match.values["name"], subresource)

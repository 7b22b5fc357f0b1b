"""
The machine that a user may have meant by a name that does not exist.
"""

from __future__ import annotations

import difflib
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.cli.advice import KUBECTL, Advice
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.explanations import doctor_hint, explain, not_allowed
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.machine_requests import AGENT

_NO_NAMESPACE = "this namespace does not exist; "
_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_MOST_POOLS = 10
_MOST_NAMES = 3
_SECONDS = 5.0


def hint_after(
    refusal: BaseException | None,
    config: ClientConfig,
    name: str,
    reactor: Any,
    advice: Advice = KUBECTL,
) -> Deferred[str]:
    """
    Return the hint of :func:`suggest_machine` after a refused console.

    :return: empty for other refusals than a missing machine; may fail.
    """
    looking = Deferred.fromCoroutine(_hint_after(refusal, config, name, reactor, advice))
    return looking.addTimeout(_SECONDS, reactor)


async def explain_with_hint(
    refusal: APIError,
    config: ClientConfig,
    name: str,
    reactor: Any,
    act: str,
    advice: Advice = KUBECTL,
) -> str:
    """
    Return the line about a refused request for a machine.

    :param act: as of :func:`not_allowed`.
    """
    hint = await hint_after(refusal, config, name, reactor, advice).addErrback(lambda _: "")
    hint = hint or doctor_hint(refusal, name, config.namespace, advice)
    message = not_allowed(refusal, explain(refusal, config.namespace, config, advice), name, act)
    return f"{message}; {hint}" if hint else message


async def _hint_after(
    refusal: BaseException | None, config: ClientConfig, name: str, reactor: Any, advice: Advice
) -> str:
    if not isinstance(refusal, APIError) or refusal.code != NotFound.code:
        return ""
    kind, group = refusal.details.get("kind"), refusal.details.get("group")
    for dialect in DIALECTS:
        if group == dialect.group and kind in (dialect.workload.plural, dialect.pool.plural):
            client = CommandClient(config, reactor, timeout_seconds=_SECONDS, agent=AGENT)
            try:
                if kind == dialect.workload.plural:
                    return await suggest_machine(client, dialect, name, config.namespace, advice)
                return await suggest_pool(client, dialect)
            finally:
                await client.close()
    return ""


async def suggest_machine(
    client: IKubeClient, dialect: Dialect, name: str, namespace: str, advice: Advice = KUBECTL
) -> str:
    """
    Return a hint: a missing namespace, where the machine is, similar names, or a command that lists
    machines.

    :return: may be empty.
    """
    others = await _names(client, dialect.workload, "", f"metadata.name={name}")
    here = [machine for _, machine in await _names(client, dialect.workload, namespace)]
    missing = "" if here or await has_namespace(client, namespace) else _NO_NAMESPACE
    if others:
        namespaces = sorted(other for other, _ in others)
        quoted = ", ".join(f'"{other}"' for other in namespaces)
        return f"{missing}the machine is in namespace {quoted}: {advice.machine_in(name, namespaces[0])}"
    if not here:
        return missing and f"{missing}{advice.list_namespaces}"
    longer = sorted(machine for machine in here if machine.startswith(name.lower()))
    near = (
        longer[:_MOST_NAMES]
        or difflib.get_close_matches(name.lower(), here, _MOST_NAMES, 0.75)
        or _nearest(name.lower(), here)
    )
    if near:
        return f"did you mean {' or '.join(', '.join(near).rsplit(', ', 1))}?"
    return advice.list_machines(dialect, namespace)


def _nearest(name: str, names: list[str]) -> list[str]:
    """Return the names that are equally near, up to three; none if nothing is similar."""
    near = difflib.get_close_matches(name, names, _MOST_NAMES)
    likeness = [difflib.SequenceMatcher(None, candidate, name).ratio() for candidate in near]
    return sorted(
        candidate for candidate, like in zip(near, likeness, strict=True) if like == likeness[0]
    )


async def missing_machine(client: IKubeClient, name: str, namespace: str) -> str:
    """Return a sentence if no machine has a name, as far as the server says so; or an empty string."""
    hints = []
    for dialect in DIALECTS if name else ():
        try:
            await client.get(dialect.workload, name, namespace)
        except NotFound as refusal:
            if refusal.details.get("name"):  # the server has the kind
                hints.append(await suggest_machine(client, dialect, name, namespace))
        except APIError:
            return ""
        else:
            return ""
    if not hints:
        return ""
    hint = next(filter(None, hints), "")
    return f'There is no machine "{name}" there{hint and f"; {hint}"}'


async def has_namespace(client: IKubeClient, namespace: str) -> bool:
    """Return whether a namespace exists; true, too, if the server does not tell the user."""
    try:
        await client.get(_NAMESPACES, namespace)
    except APIError as refusal:
        # The details, because a server without namespaces answers 404, too.
        return refusal.code != NotFound.code or refusal.details.get("name") != namespace
    return True


async def suggest_pool(client: IKubeClient, dialect: Dialect) -> str:
    """Return the names of the first pools, if pools can be listed."""
    names = sorted(name for _, name in await _names(client, dialect.pool))
    more = ", ..." if len(names) > _MOST_POOLS else ""
    return (
        f"existing {dialect.pool.plural}: {', '.join(names[:_MOST_POOLS])}{more}" if names else ""
    )


async def _names(
    client: IKubeClient, resource: Resource, namespace: str = "", field_selector: str = ""
) -> list[tuple[str, str]]:
    try:
        listed = await client.list(resource, namespace, field_selector=field_selector)
    except APIError:
        return []
    return [
        (str(item["metadata"].get("namespace", "")), str(item["metadata"].get("name", "")))
        for item in listed["items"]
    ]

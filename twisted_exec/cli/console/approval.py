"""
``kubectl console --request``: ask for an approval and wait for it, or come back later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.api.kinds.consolepolicies import APPROVAL_REQUIRED
from twisted_exec.api.kinds.consolerequests import PENDING, state_of
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.messages import one_line
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.wire.session_terms import Right
from twisted_exec.wire.stream_options import StreamOptions

LOOK_SECONDS = 2.0
REMIND_SECONDS = 60.0
_LONGEST_PREFIX = 200

Say = Callable[[str], None]


def _causes(refusal: BaseException | None) -> Sequence[Mapping[str, Any]]:
    return refusal.causes if isinstance(refusal, APIError) else ()


def _policies(refusal: BaseException | None) -> list[str]:
    """Return what policies require, each once; their texts say who approves."""
    texts = (one_line(str(cause.get("message") or "")) for cause in _causes(refusal))
    return list(dict.fromkeys(filter(None, texts)))


def is_required(refusal: BaseException | None) -> bool:
    """Return whether a console was refused only because no other user has approved it."""
    causes = _causes(refusal)
    return bool(causes) and all(cause.get("reason") == APPROVAL_REQUIRED for cause in causes)


async def approval(
    config: ClientConfig,
    machine: str,
    among: Sequence[Dialect],
    options: StreamOptions,
    reason: str,
    reactor: Any,
    say: Say,
    timeout_seconds: float,
    refusal: BaseException | None = None,
) -> None:
    """
    Create a ConsoleRequest and wait until another user approves it.

    A request for the same that waits already is not made again.

    :param among: dialects of the machine; the server chooses if there are several.
    :param options: of the session, which say for which right the request is.
    :param refusal: of the console, which names the user's last request.
    :raises APIError: the request was refused, denied or deleted, or may not be read.
    """
    right = Right.OBSERVE
    if options.takes_input:
        right = Right.TAKEOVER if options.force else Right.DRIVE
    spec = {"machine": machine, "right": right.verb, "reason": reason}
    if len(among) == 1:
        spec["machineResource"] = among[0].workload.qualified
    spec = {key: value for key, value in spec.items() if value}
    client = CommandClient(
        config, reactor, timeout_seconds=timeout_seconds, agent="kubectl-console"
    )
    try:
        request = former = await _waiting(client, config, refusal)
        is_made = former is None or not _is_for(former, spec)
        if request is None or is_made:
            body = {"metadata": {"generateName": f"{machine[:_LONGEST_PREFIX]}-"}, "spec": spec}
            request = await client.create(CONSOLEREQUESTS.resource, body, config.namespace)
        name = request["metadata"]["name"]
        say(
            "".join(f"{each}\n" for each in _policies(refusal))
            + f'{"" if is_made else "your "}request "{name}" waits {"" if is_made else "already "}'
            "for the approval of another user, who runs\n"
            f"  twisted-exec request approve -n {config.namespace} {name}\n"
            "or\n"
            f"  kubectl patch consolerequest -n {config.namespace} {name} --subresource=approval "
            '--type=merge -p \'{"status":{"approved":true}}\''
        )
        if is_made and former is not None:
            say(_reminder(former))
        try:
            await _decided(client, config, name, reactor, say)
        except CancelledError:
            say(f'request "{name}" stays: after its approval, open the console without --request')
            raise
    finally:
        await client.close()


async def _waiting(
    client: CommandClient, config: ClientConfig, refusal: BaseException | None
) -> Object | None:
    """Return the request that a refusal names, if it still waits."""
    for name in filter(None, (cause.get("request") for cause in _causes(refusal))):
        try:
            request = await client.get(CONSOLEREQUESTS.resource, name, config.namespace)
        except APIError:  # it was deleted, or is not for this user to read
            continue
        if state_of(request, time.time()) == PENDING:
            return request
    return None


def _is_for(request: Object, spec: Object) -> bool:
    existing = request["spec"]
    return all(existing.get(key, "") == spec.get(key, "") for key in ("machine", "right", "reason"))


def _reminder(former: Object) -> str:
    metadata, spec = former["metadata"], former["spec"]
    about = ", ".join(
        [spec["right"], *([f'"{one_line(spec["reason"])}"'] if spec.get("reason") else ())]
    )
    return (
        f'your earlier request "{metadata["name"]}" ({about}) waits, too; if you no longer need it: '
        f"kubectl delete consolerequest -n {metadata['namespace']} {metadata['name']}"
    )


async def _decided(
    client: CommandClient, config: ClientConfig, name: str, reactor: Any, say: Say
) -> None:
    # Not a PokedLoop: it ends with the decision, and reminds the user meanwhile.
    problem, remind = "", reactor.seconds() + REMIND_SECONDS
    while True:
        await deferLater(reactor, LOOK_SECONDS)
        try:
            request = await client.get(CONSOLEREQUESTS.resource, name, config.namespace)
        except NotFound:
            raise NotFound(
                CONSOLEREQUESTS.resource.plural, name, "", f'request "{name}" was deleted'
            ) from None
        except APIError as error:
            if error.code in (401, 403):
                raise
            if not problem:
                say(f"{error.message}; trying again")
            problem = error.message
            continue
        problem, status = "", request.get("status", {})
        by = status.get("decidedBy", "another user")
        if status.get("denied"):
            because = f": {status['message']}" if status.get("message") else ""
            raise Forbidden(f'user "{by}" denied request "{name}"{because}')
        if status.get("approved"):
            say(f'user "{by}" approved request "{name}", until {status.get("expirationTime")}')
            return
        if reactor.seconds() >= remind:
            remind = reactor.seconds() + REMIND_SECONDS
            say(f'request "{name}" still waits')

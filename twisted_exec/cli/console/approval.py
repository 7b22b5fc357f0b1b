"""
``kubectl console --request``: ask for an approval and wait for it, or come back later.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.api.kinds.consolepolicies import APPROVAL_REQUIRED
from twisted_exec.api.kinds.consolerequests import PENDING, state_of
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.api.times import seconds
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.outage import NO_ANSWER_SECONDS
from twisted_exec.cli.messages import age, one_line
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.wire.session_terms import Right
from twisted_exec.wire.stream_options import StreamOptions

LOOK_SECONDS = 2.0
REMIND_SECONDS = 60.0
AFTER_APPROVAL = "after its approval, open the console without --request"
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


class ApprovalWait:
    """
    The state of the wait for another user, for people.

    :ivar problem: of the last look at the request; empty if that had an answer.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self._name, self._since = clock, "", clock.seconds()
        self._asked: float | None = None  # the first look since the last answer
        self.problem = ""

    def begun(self, request: Object) -> None:
        metadata = request["metadata"]
        self._name = metadata["name"]
        passed = time.time() - seconds(metadata["creationTimestamp"])
        self._since = self._clock.seconds() - max(0.0, passed)

    def asked(self) -> None:
        if self._asked is None:
            self._asked = self._clock.seconds()

    def answered(self) -> None:
        self._asked, self.problem = None, ""

    def __str__(self) -> str:
        """Return a line about the wait; a narrow terminal cuts its middle."""
        return "; ".join(filter(None, (self._silence(), self._waits())))

    def describe(self) -> str:
        """Return also why the server has not answered."""
        problem = f": {one_line(self.problem)}" if self.problem else ""
        return "; ".join(filter(None, (self._waits(), f"{self._silence()}{problem}")))

    def _waits(self) -> str:
        if not self._name:
            return f"asking for an approval, {self._age(self._since)}"
        return f'request "{self._name}" waits for another user, {self._age(self._since)}'

    def _silence(self) -> str:
        if self._asked is None:
            return ""
        is_brief = self._clock.seconds() - self._asked < NO_ANSWER_SECONDS
        if is_brief and not self.problem:
            return ""
        return f"no answer of the server for {self._age(self._asked)}"

    def _age(self, since: float) -> str:
        return age(self._clock.seconds() - since)


async def approval(
    config: ClientConfig,
    machine: str,
    among: Sequence[Dialect],
    options: StreamOptions,
    reason: str,
    reactor: Any,
    say: Say,
    timeout_seconds: float,
    refusal: BaseException | None,
    attempt: Callable[[], Awaitable[bool]],
    wait: ApprovalWait,
) -> None:
    """
    Create a ConsoleRequest and wait until another user approves it, or until no approval is needed.

    A request for the same that waits already is not made again.

    :param among: dialects of the machine; the server chooses if there are several.
    :param options: of the session, which say for which right the request is.
    :param refusal: of the console, which names the user's last request.
    :param attempt: opens the console, if no policy requires an approval any more, and returns
        whether it did; called seldom, because servers note each refusal.
    :param wait: gets the state of the wait.
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
        request = former = await waiting_request(client, config.namespace, refusal)
        is_made = former is None or not _is_for(former, spec)
        if request is None or is_made:
            body = {"metadata": {"generateName": f"{machine[:_LONGEST_PREFIX]}-"}, "spec": spec}
            request = await client.create(CONSOLEREQUESTS.resource, body, config.namespace)
        name = request["metadata"]["name"]
        wait.begun(request)
        say(
            "".join(f"{each}\n" for each in _policies(refusal))
            + f'{"" if is_made else "your "}request "{name}" waits {"" if is_made else "already "}'
            "for the approval of another user, who runs\n"
            f"  {approving(config.namespace, name)}\n"
            "or\n"
            f"  kubectl patch consolerequest -n {config.namespace} {name} --subresource=approval "
            '--type=merge -p \'{"status":{"approved":true}}\''
        )
        if is_made and former is not None:
            say(_reminder(former))
        try:
            await _decided(client, config, name, reactor, say, attempt, wait)
        except CancelledError:
            say(f'request "{name}" stays: {AFTER_APPROVAL}')
            raise
    finally:
        await client.close()


async def waiting_request(
    client: CommandClient, namespace: str, refusal: BaseException | None
) -> Object | None:
    """Return the request that a refusal names, if it still waits."""
    for name in filter(None, (cause.get("request") for cause in _causes(refusal))):
        try:
            request = await client.get(CONSOLEREQUESTS.resource, name, namespace)
        except APIError:  # it was deleted, or is not for this user to read
            continue
        if state_of(request, time.time()) == PENDING:
            return request
    return None


def _is_for(request: Object, spec: Object) -> bool:
    existing = request["spec"]
    return all(existing.get(key, "") == spec.get(key, "") for key in ("machine", "right", "reason"))


def named(request: Object) -> str:
    """Return a request's name, right and reason."""
    spec = request["spec"]
    about = ", ".join(
        [spec["right"], *([f'"{one_line(spec["reason"])}"'] if spec.get("reason") else ())]
    )
    return f'request "{request["metadata"]["name"]}" ({about})'


def approving(namespace: str, name: str) -> str:
    """Return the command that approves a request."""
    return f"twisted-exec request approve -n {namespace} {name}"


def _reminder(former: Object) -> str:
    metadata = former["metadata"]
    return (
        f"your earlier {named(former)} waits, too; if you no longer need it: "
        f"kubectl delete consolerequest -n {metadata['namespace']} {metadata['name']}"
    )


async def _decided(
    client: CommandClient,
    config: ClientConfig,
    name: str,
    reactor: Any,
    say: Say,
    attempt: Callable[[], Awaitable[bool]],
    wait: ApprovalWait,
) -> None:
    # Not a PokedLoop: it ends with the decision, and reminds the user meanwhile.
    remind = reactor.seconds() + REMIND_SECONDS
    while True:
        await deferLater(reactor, LOOK_SECONDS)
        wait.asked()
        try:
            request = await client.get(CONSOLEREQUESTS.resource, name, config.namespace)
        except NotFound:
            raise NotFound(
                CONSOLEREQUESTS.resource.plural, name, "", f'request "{name}" was deleted'
            ) from None
        except APIError as error:
            if error.code in (401, 403):
                raise
            if not wait.problem:
                say(f"{error.message}; trying again")
            wait.problem = error.message
            continue
        if wait.problem:
            say("the server answers again")
        wait.answered()
        status = request.get("status", {})
        by = status.get("decidedBy", "another user")
        if status.get("denied"):
            because = f": {status['message']}" if status.get("message") else ""
            raise Forbidden(f'user "{by}" denied request "{name}"{because}')
        if status.get("approved"):
            say(f'user "{by}" approved request "{name}", until {status.get("expirationTime")}')
            return
        if reactor.seconds() >= remind:
            if await attempt():
                say(
                    f'no approval is needed any more; to withdraw request "{name}", run '
                    f"kubectl delete consolerequest -n {config.namespace} {name}"
                )
                return
            remind = reactor.seconds() + REMIND_SECONDS
            say(f'request "{name}" still waits')

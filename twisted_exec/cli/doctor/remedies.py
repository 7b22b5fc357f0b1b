"""
The remedies of ``twisted-exec doctor``: for refusals and endings of consoles, and for conditions of machines.

Other commands have those of :mod:`twisted_exec.cli.explanations`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.consolepolicies import (
    APPROVAL_REQUIRED,
    NOT_ALLOWED,
    REASON_REQUIRED,
)
from twisted_exec.api.obstacles import Obstacle, named_obstacles, obstacles_of
from twisted_exec.api.status import APIError, Forbidden, TooManyRequests
from twisted_exec.cli.advice import KUBECTL
from twisted_exec.cli.explanations import role_to_request
from twisted_exec.cli.refusal_texts import obstacles_in
from twisted_exec.wire.endings import (
    COMPLETED,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
)

API_SERVER = "see the log of the API server, and the network on the way"
POOLLET = "see that exec-poollet runs and reaches the API server: its log, and /readyz"
RUNTIME = "see that the runtime runs (its log), and --machine-runtime-endpoint of the poollet"
OUTPUT = (
    "free space on the disk of the runtime's --state-dir, or mend what the message names; the runtime tries again. "
    "Until then at least the newest 192 KiB of each machine stay in memory, and older output is lost"
)
_RIGHTS = "ask an administrator for the right that the message names"
_START = "mend what the message names, and see the runtime's log"
_COPY = "see the log of exec-poollet, whose copy may be out of date"
_ADDRESSES = (
    "set --addresses of the poollet, or the address types of --preferred-address-types of the API "
    "server"
)

LINES = {
    "NoLine": "delete the machine and create it again with the name of a free line, or add a line of "
    "its name to the file of the runtime's --classes and reload the runtime, or to the class's list "
    "(lines_from)",
    "RowRefused": "correct the row of the list (lines_from) that the message names; the runtime reads the list again when "
    "it has changed",
    "ListRefused": "mend the list (lines_from) that the message names, or add a row of the machine's name to it; the "
    "runtime reads the list again when it has changed",
    "LineChanged": "wait: the operator has given the machine another server, and the runtime opens the console there",
    "LineTaken": "power the other machine off, or delete it",
    "LineFailed": "mend what the message names: the far end of the line, or the line's options in "
    "the file of the runtime's --classes, which a reload of the runtime reads; the runtime tries again",
    LINE_LOST: "mend what the message names: the far end of the line, the way to it, or the line's user and password "
    "file; the runtime tries again until the line is back",
}
"""Remedies by the reason of a Machine's condition Ready, for reasons that are about the line."""

LINE_OF_DRIVER = "mend what the message names; the runtime tries again. After a change in the file of its --classes, reload it"
"""Remedy for a line that is broken for a reason of its driver."""

_OBSTACLES: Mapping[Obstacle, tuple[str, str]] = {
    Obstacle.BEING_DELETED: ("machine", "wait until it is gone, and create it again"),
    Obstacle.POWERED_OFF: ("machine", ""),
    Obstacle.CANNOT_START: ("runtime", _START),
    Obstacle.NOT_RUNNING: ("runtime", RUNTIME),
    Obstacle.NO_POOL: (
        "machine",
        "ask an administrator for a pool that has room for the machine: the scheduler then assigns it",
    ),
    Obstacle.POOL_NOT_FOUND: (
        "pool",
        "ask an administrator to start the poollet of the pool, which creates it, or for the name of "
        "another pool: to use that, delete the machine and create it again",
    ),
    Obstacle.NOT_IN_POOL: ("poollet", _COPY),
    Obstacle.NO_ADDRESS: ("pool", _ADDRESSES),
    Obstacle.CANNOT_BE_RECORDED: ("console", _START),
}
"""The part that an obstacle is about, and the remedy."""

_POLICY_CAUSES = frozenset({REASON_REQUIRED, APPROVAL_REQUIRED, NOT_ALLOWED})

_ENDINGS = {
    COMPLETED: "see its last output with kubectl logs; the runtime starts it again when its driver "
    "restarts machines",
    MACHINE_DELETED: "create the machine again",
    POOL_DELETED: "start the poollet of the pool, which creates the pool again",
    LINE_LOST: "mend what the message names, and see the runtime's log",
    SHUTTING_DOWN: "try again when the program that the message names has started again",
    REVOKED: _RIGHTS,
}


def other_class(dialect: Dialect, name: str) -> str:
    """Return the remedy for a class that does not exist."""
    classes = dialect.workload_class
    return (
        f"create the {classes.kind} {name}, or delete the {dialect.noun} and create it again with "
        f"another class (see kubectl get {classes.plural}): spec.{dialect.class_reference} is immutable"
    )


def other_offer(dialect: Dialect, name: str) -> str:
    """Return the remedy for a class that the runtime of the machine's pool does not offer."""
    return (
        f"add the class {name} to the runtime's --classes, or delete the {dialect.noun} and create it again with a class "
        f"that the runtime offers: spec.{dialect.class_reference} is immutable"
    )


def other_pool(dialect: Dialect) -> str:
    """Return the remedy for a pool that does not exist."""
    return (
        f"start its poollet, which creates it, or delete the {dialect.noun} and create it again with "
        f"another pool (see kubectl get {dialect.pool.plural}): spec.{dialect.pool_reference} is "
        "immutable"
    )


def _connection_remedies(
    hop: str, next_hop: str, addresses: str, also: str, authority: str
) -> dict[Obstacle, str]:
    certificate = (
        f"the serving certificate of the {next_hop} must be valid, name this address{also} and be "
        f"signed by a CA in {authority} of the {hop}"
    )
    way = f"see firewalls and routes from the host of the {hop} to this address, and {addresses}"
    name = f"correct {addresses}, or the DNS settings of the {hop}'s host"
    return {
        Obstacle.NAME_UNKNOWN: name,
        Obstacle.CERTIFICATE_REFUSED: certificate,
        Obstacle.CERTIFICATE_UNTRUSTED: certificate,
        Obstacle.CERTIFICATE_OF_OTHER: certificate,
        Obstacle.CERTIFICATE_OUTSIDE_VALIDITY: certificate,
        Obstacle.CONNECT_TIMEOUT: way,
        Obstacle.NO_ROUTE: way,
    }


@dataclass(frozen=True)
class _Part:
    """
    A part of the way to the console that failed.

    :param remedies: by the obstacle of its connection; the remedies of all obstacles apply.
    :param remedy: for other obstacles.
    """

    check: str
    remedy: str
    remedies: Mapping[Obstacle, str] = field(default_factory=dict)

    def remedy_for(self, obstacles: Collection[Obstacle]) -> str:
        reasons = [each for each in obstacles if each not in _PARTS]
        fitting = [self.remedies.get(each, self.remedy) for each in reasons]
        return "; ".join(dict.fromkeys(fitting)) or self.remedy


_PARTS: Mapping[Obstacle, _Part] = {
    Obstacle.POOLLET_FAILED: _Part(
        "poollet",
        POOLLET,
        {
            **_connection_remedies(
                "API server",
                "poollet",
                "--addresses of the poollet",
                ", belong to the pool",
                "--machinepoollet-certificate-authority",
            ),
            Obstacle.CREDENTIALS_REFUSED: "--machinepoollet-client-certificate of the API server must "
            "be valid, signed by a CA in --requestheader-client-ca-file of the poollet, and have one "
            "of the names in its --requestheader-allowed-names",
        },
    ),
    Obstacle.RUNTIME_FAILED: _Part(
        "runtime",
        RUNTIME,
        _connection_remedies(
            "poollet", "runtime", "--base-url of the runtime", "", "--runtime-ca-file"
        ),
    ),
    Obstacle.SERVER_UNREACHABLE: _Part("server", API_SERVER),
}


@dataclass(frozen=True)
class PolicyRefusal:
    """
    The conditions of ConsolePolicies that a session does not meet.

    :param message: the conditions.
    :param can_ask: the user can meet all of them with ``remedy``, a command.
    """

    message: str
    remedy: str
    can_ask: bool


def of_policies(
    error: APIError, name: str, namespace: str, *, observes: bool
) -> PolicyRefusal | None:
    """
    Return why ConsolePolicies refused a console; ``None`` if they did not.

    :param observes: the user may only observe.
    """
    causes = [cause for cause in error.causes if cause.get("reason") in _POLICY_CAUSES]
    if error.code != Forbidden.code or not causes:
        return None
    reasons = {cause["reason"] for cause in causes}
    message = "; ".join(dict.fromkeys(str(cause.get("message") or "") for cause in causes))
    if NOT_ALLOWED in reasons:
        # Without a command: observers may not read policies, and the message has what this one says.
        remedy = "do as the policy says, or ask an administrator to change it"
        return PolicyRefusal(message, remedy, can_ask=False)
    options = "--read-only " * observes + "--request " * (APPROVAL_REQUIRED in reasons)
    remedy = f"kubectl console {options}--reason TICKET -n {namespace} {name}"
    return PolicyRefusal(message, remedy, can_ask=True)


def of_refusal(error: APIError) -> tuple[str, str]:
    """
    Return the part that refused a console, as a check's name, and the remedy.

    Without a remedy for ``machine``, :meth:`.Advice.power_on` has it.
    """
    if error.code == Forbidden.code:
        return "rights", role_to_request(error) or _RIGHTS
    if error.code == TooManyRequests.code:
        return (
            "console",
            "try again later, or raise the limit of the program that the message names",
        )
    return _first_remedy(obstacles_of(error) or obstacles_in(error.message))


def _first_remedy(obstacles: Sequence[Obstacle]) -> tuple[str, str]:
    for obstacle in obstacles:
        if obstacle in _OBSTACLES:
            return _OBSTACLES[obstacle]
    for obstacle in obstacles:
        if obstacle in _PARTS:
            part = _PARTS[obstacle]
            return part.check, part.remedy_for(obstacles)
    return "console", "see the log of the API server"


def of_ending(ending: Ending, dialect: Dialect, name: str, namespace: str) -> str:
    """Return the remedy for a session that ended too soon."""
    if ending.reason == POWERED_OFF:
        return KUBECTL.power_on(dialect, name, namespace)
    if remedy := _ENDINGS.get(ending.reason):
        return remedy
    return _first_remedy(named_obstacles(ending.causes) or obstacles_in(ending.message))[1]

"""
Remedies: what a user can do about a condition, a refused console or the end of a session.

Each remedy names the program that the message is about, and works as written: it proposes no change
of an immutable field.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import Forbidden, TooManyRequests
from twisted_exec.wire.remotecommand.messages import (
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
_RIGHTS = "ask an administrator for the right that the message names"

LINES = {
    "NoLine": "delete the machine and create it again with the name of a free line, or add a line of "
    "its name to the file of the runtime's --classes and restart the runtime",
    "LineTaken": "power the other machine off, or delete it",
    "LineFailed": "mend what the message names: the far end of the line, or the line's options in "
    "the file of the runtime's --classes; the runtime tries again",
    LINE_LOST: "mend what the message names: the far end of the line, or the way to it; the runtime "
    "tries again until the line is back",
}
"""Remedies by the reason of a Machine's condition Ready, for reasons that are about the line."""

_MOST_NAMES = 10


def power_on(dialect: Dialect, name: str, namespace: str) -> str:
    """Return the command that powers a machine on."""
    patch = """-p '{"spec":{"power":"On"}}'"""
    return f"kubectl patch {dialect.workload.plural} {name} -n {namespace} --type=merge {patch}"


def other_class(dialect: Dialect, name: str, existing: Sequence[str]) -> str:
    """
    Return the remedy for a class that does not exist.

    :param existing: names of the classes that exist; empty if the user may not list them.
    """
    listed = ", ".join(sorted(existing)[:_MOST_NAMES])
    more = ", ..." if len(existing) > _MOST_NAMES else ""
    classes = f"there are: {listed}{more}" if listed else f"see kubectl get {_classes(dialect)}"
    return (
        f"create the {dialect.workload_class.kind} {name}, or delete the {dialect.noun} and create it "
        f"again with another class ({classes}): spec.{dialect.class_reference} is immutable"
    )


def _classes(dialect: Dialect) -> str:
    return dialect.workload_class.plural


def other_pool(dialect: Dialect) -> str:
    """Return the remedy for a pool that does not exist."""
    return (
        f"start its poollet, which creates it, or delete the {dialect.noun} and create it again with "
        f"another pool (see kubectl get {dialect.pool.plural}): spec.{dialect.pool_reference} is "
        "immutable"
    )


def _of_connection(
    hop: str, next_hop: str, addresses: str, also: str, authority: str, default: str
) -> tuple[tuple[str, str], ...]:
    """
    Return the remedies for a connection between two programs, by the reason in the message.

    :param addresses: the setting that decides which address is dialled.
    :param also: what else the certificate must do.
    :param authority: option of ``hop`` with the CA of the certificates of ``next_hop``.
    """
    certificate = (
        f"the serving certificate of the {next_hop} must be valid, name this address{also} and be "
        f"signed by a CA in {authority} of the {hop}"
    )
    way = f"see firewalls and routes from the host of the {hop} to this address, and {addresses}"
    return (
        ("its name is not known", f"correct {addresses}, or the DNS settings of the {hop}'s host"),
        (" is refused: ", certificate),
        ("is not valid for", certificate),
        ("is not that of the pool", certificate),
        ("no connection within", way),
        ("no route to it", way),
        ("connection refused", default),
    )


_CONNECTIONS = {
    "poollet": (
        *_of_connection(
            "API server",
            "poollet",
            "--addresses of the poollet",
            ", belong to the pool",
            "--machinepoollet-certificate-authority",
            POOLLET,
        ),
        (
            "does not accept this server's credentials",
            "--machinepoollet-client-certificate of the API server must be valid, signed by a CA in "
            "--requestheader-client-ca-file of the poollet, and have one of the names in its "
            "--requestheader-allowed-names",
        ),
    ),
    "runtime": _of_connection(
        "poollet",
        "runtime",
        "--base-url of the runtime",
        "",
        "--runtime-ca-file",
        RUNTIME,
    ),
}
"""Remedies by the check, for texts of a refusal; those of all texts that it has."""

_REFUSALS: tuple[tuple[str, str, str], ...] = (
    ("is powered off", "machine", ""),
    ("cannot start:", "runtime", "mend what the message names, and see the runtime's log"),
    ("not running yet:", "runtime", "mend what the message names, and see the runtime's log"),
    ("not found in pool", "poollet", "see the log of exec-poollet, whose copy may be out of date"),
    (
        "has no usable address",
        "pool",
        "set --addresses of the poollet, or the address types of "
        "--preferred-address-types of the API server",
    ),
    ('pool "', "poollet", POOLLET),
    ('fleet "', "poollet", POOLLET),
    ("runtime", "runtime", RUNTIME),
    ("not running yet", "runtime", RUNTIME),
    ("cannot reach http", "server", API_SERVER),
)
"""Text of a refusal, the part that it is about, and the remedy; the first that matches."""


def of_refusal(message: str, code: int) -> tuple[str, str]:
    """
    Return the part that refused a console, as a check's name, and the remedy.

    The remedy of ``machine`` is :func:`power_on`.

    :param code: of the answer; 0 without one.
    """
    if code == Forbidden.code:
        return "rights", _RIGHTS
    if code == TooManyRequests.code:
        return (
            "console",
            "try again later, or raise the limit of the program that the message names",
        )
    for text, check, remedy in _REFUSALS:
        if text in message:
            fitting = [each for why, each in _CONNECTIONS.get(check, ()) if why in message]
            return check, "; ".join(dict.fromkeys(fitting)) or remedy
    return "console", "see the log of the API server"


_ENDINGS = {
    COMPLETED: "see its last output with kubectl logs; the runtime starts it again when its driver "
    "restarts machines",
    MACHINE_DELETED: "create the machine again",
    POOL_DELETED: "start the poollet of the pool, which creates the pool again",
    LINE_LOST: "mend what the message names, and see the runtime's log",
    SHUTTING_DOWN: "try again when the program that the message names has started again",
    REVOKED: _RIGHTS,
}


def of_ending(ending: Ending, dialect: Dialect, name: str, namespace: str) -> str:
    """Return the remedy for a session that ended at once."""
    if ending.reason == POWERED_OFF:
        return power_on(dialect, name, namespace)
    if remedy := _ENDINGS.get(ending.reason):
        return remedy
    return of_refusal(ending.message, 0)[1] or "see the log of the API server"

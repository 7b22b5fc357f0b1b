"""
``twisted-exec request``: list, show, approve and deny ConsoleRequests.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from twisted_exec.api import times
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.kinds import CONSOLEREQUESTS
from twisted_exec.api.kinds.consolerequests import (
    APPROVED,
    DENIED,
    PENDING,
    USED,
    WITHDRAWN,
    expiry,
    state_of,
)
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.auth.default_roles import CONSOLE_APPROVER
from twisted_exec.auth.rules import CONSOLE
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.space import who
from twisted_exec.cli.explanations import ask_for_role
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.machine_options import add_namespace_option, object_name
from twisted_exec.cli.messages import for_stdout, one_line
from twisted_exec.cli.refusal_texts import lacking_right, with_next_request
from twisted_exec.cli.runner import nothing_found, server_command
from twisted_exec.cli.table import table
from twisted_exec.wire.session_terms import Right

Object = dict[str, Any]

_CANNOT_APPROVE = {
    USED: "its approval was for one session, which has begun",
    DENIED: "a denial is final",
    WITHDRAWN: "its approval was withdrawn, which is final",
}
"""Why a request in a state cannot be approved."""
_CANNOT_DENY = {
    DENIED: "it is already denied",
    WITHDRAWN: "its approval is already withdrawn",
}
"""Why a request in a state cannot be denied."""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``request``."""
    parser.description = (
        "List, approve and deny the ConsoleRequests of users who need an approval for a "
        "console. Users create them with kubectl console --request."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = server_command(commands, "request", "list", "list requests, the newest last", _list)
    add_namespace_option(listing)
    listing.add_argument(
        "-A", "--all-namespaces", action="store_true", help="list those of all namespaces"
    )
    show = server_command(commands, "request", "show", "show everything about a request", _show)
    approve = server_command(commands, "request", "approve", "approve a request", _approve)
    deny = server_command(
        commands, "request", "deny", "deny a request, or withdraw its approval", _deny
    )
    for each in (show, approve, deny):
        each.add_argument("name", metavar="NAME", type=object_name, help="the ConsoleRequest")
        add_namespace_option(each)
    for each in (approve, deny):
        each.add_argument(
            "--reason", metavar="TEXT", default="", help="a remark for the user of the request"
        )


async def _list(client: CommandClient, options: argparse.Namespace) -> str:
    namespace = "" if options.all_namespaces else client.config.namespace
    requests = (await client.list(CONSOLEREQUESTS.resource, namespace))["items"]
    if not requests:
        return nothing_found("requests", namespace)
    requests.sort(key=lambda each: each["metadata"]["creationTimestamp"])
    head = ["NAME", "MACHINE", "USER", "RIGHT", "STATE", "LEFT", "REASON"]
    rows = [_row(each) for each in requests]
    if options.all_namespaces:
        head.insert(0, "NAMESPACE")
        for row, each in zip(rows, requests, strict=True):
            row.insert(0, each["metadata"]["namespace"])
    return table(head, rows)


def _row(request: Object) -> list[str]:
    spec, now = request["spec"], time.time()
    state = state_of(request, now)
    values = (
        request["metadata"]["name"],
        spec["machine"],
        spec.get("user", ""),
        spec.get("right", ""),
        state,
        _left(request, now) if state in (APPROVED, PENDING) else "",
        spec.get("reason", ""),
    )
    return [one_line(value) or "<none>" for value in values]


def _left(request: Object, now: float) -> str:
    return times.human(expiry(request) - now)


async def _show(client: CommandClient, options: argparse.Namespace) -> str:
    request = await _get(client, options.name)
    spec, status, now = request["spec"], request.get("status", {}), time.time()
    state = state_of(request, now)
    lines = (
        ("Name", request["metadata"]["name"]),
        ("Namespace", request["metadata"]["namespace"]),
        ("Machine", f"{spec['machine']} ({spec.get('machineUID', '')})"),
        ("User", spec.get("user", "")),
        ("Impersonated by", spec.get("caller", "")),
        ("Right", spec.get("right", "")),
        ("Reason", spec.get("reason", "")),
        ("For", times.human(spec.get("seconds", 0))),
        ("Created", request["metadata"]["creationTimestamp"]),
        ("State", state),
        ("Left", _left(request, now) if state in (APPROVED, PENDING) else ""),
        ("Decided by", status.get("decidedBy", "")),
        ("Decided at", status.get("decisionTime", "")),
        ("Expires", status.get("expirationTime", "")),
        ("Remark", status.get("message", "")),
        ("Session", status.get("session", "")),
    )
    return "".join(f"{key + ':':<17}{one_line(value)}\n" for key, value in lines if value)


async def _approve(client: CommandClient, options: argparse.Namespace) -> str:
    request = await _get_to_decide(client, options.name)
    if why := _CANNOT_APPROVE.get(state_of(request, time.time())):
        user = _quoted(request["spec"].get("user"))
        raise InputError(
            f'request "{options.name}" cannot be approved: {why}; user {user} creates another request'
        )
    request = await _decide(client, options, request, {"approved": True})
    spec, status = request["spec"], request["status"]
    line = for_stdout(
        f'request "{options.name}" approved: user {_quoted(spec.get("user"))} may '
        f"{spec['right']} machine {_quoted(spec['machine'])} until {status['expirationTime']}"
    )
    return f"{line}\n"


async def _deny(client: CommandClient, options: argparse.Namespace) -> str:
    request = await _get_to_decide(client, options.name)
    if why := _CANNOT_DENY.get(state_of(request, time.time())):
        raise InputError(f'request "{options.name}" cannot be denied: {why}')
    request = await _decide(client, options, request, {"denied": True})
    if state_of(request, time.time()) != WITHDRAWN:
        return f'request "{options.name}" denied\n'
    line = for_stdout(
        f'approval of request "{options.name}" withdrawn; a session that still uses it ends'
    )
    return f"{line}\n"


async def _decide(
    client: CommandClient, options: argparse.Namespace, request: Object, status: Object
) -> Object:
    if options.reason:
        status["message"] = options.reason
    # With the UID, so that the server refuses if another request has got this name meanwhile.
    uid = request["metadata"]["uid"]
    try:
        return await client.patch(
            CONSOLEREQUESTS.resource,
            options.name,
            {"metadata": {"uid": uid}, "status": status},
            client.config.namespace,
            subresource="approval",
        )
    except APIError as refusal:
        requesters = request["spec"].get("user"), request["spec"].get("caller")
        if refusal.code == Forbidden.code and await who(client) in requesters:
            raise InputError(_own(options.name, client.config.namespace)) from None
        right = lacking_right(refusal)
        if right is not None and right.verb == Right.DRIVE.verb:
            remedy = ask_for_role(right, observing_helps=False)
            raise InputError(f"{refusal.message}; {remedy}") from None
        raise


def _own(name: str, namespace: str) -> str:
    """Return the refusal for the user of a request, who could not decide with any role."""

    return (
        f'request "{name}" is your own: another user approves or denies it, who has the role '
        f"{CONSOLE_APPROVER} and may drive the console; to withdraw it, run "
        f"kubectl delete consolerequest -n {namespace} {name}"
    )


async def _get_to_decide(client: CommandClient, name: str) -> Object:
    try:
        return await _get(client, name)
    except APIError as refusal:
        # The smallest role for reading does not suffice.
        machines = DIALECTS[0].workload  # each role is for all dialects
        with_next_request(refusal, Right.DRIVE.verb, CONSOLE, machines)
        raise with_next_request(refusal, "patch", "approval", CONSOLEREQUESTS.resource) from None


async def _get(client: CommandClient, name: str) -> Object:
    namespace = client.config.namespace
    try:
        return await client.get(CONSOLEREQUESTS.resource, name, namespace)
    except NotFound as error:
        if not error.details.get("name"):
            raise InputError(
                "the server has no ConsoleRequests: it is not an exec-apiserver"
            ) from None
        raise InputError(
            f'consolerequest "{name}" not found in namespace "{namespace}"; '
            "twisted-exec request list -A lists all requests"
        ) from None


def _quoted(text: object) -> str:
    return f'"{one_line(str(text or ""))}"'

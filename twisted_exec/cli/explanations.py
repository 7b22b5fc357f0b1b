"""
Failures explained to the user, with a remedy for each obstacle.

:func:`explain` makes one line of any error; the caller prints it (:mod:`twisted_exec.cli.messages`). The remedies of
``twisted-exec doctor`` are in :mod:`twisted_exec.cli.doctor.remedies`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout, ServiceUnavailable
from twisted_exec.cli.refusal_texts import DENIED

if TYPE_CHECKING:
    from twisted_exec.kube.kubeconfig.client_config import ClientConfig

_OTHER_CA = (
    "get the CA of the server from its administrator, and give --certificate-authority FILE, or set "
    "certificate-authority of this cluster in the kubeconfig"
)
_WITH_TLS = "use https:// if the server speaks TLS on this port"
_UNREACHABLE = {
    Obstacle.CONNECTION_REFUSED: "start that API server, or choose another cluster with --context",
    Obstacle.NAME_UNKNOWN: "correct the server in the kubeconfig, or this host's DNS settings",
    Obstacle.CERTIFICATE_UNTRUSTED: _OTHER_CA,
    Obstacle.CERTIFICATE_OF_OTHER: "use an address that the certificate names, or --tls-server-name",
    Obstacle.NO_TLS: "correct the port of the server, or use http:// if it has no TLS",
}
"""Remedies for a server that cannot be reached."""
_UNREACHABLE_IN_CLEAR = _UNREACHABLE | {
    Obstacle.CONNECTION_LOST: _WITH_TLS,
    Obstacle.NO_HTTP: _WITH_TLS,
}

_FAILED_HOP = frozenset({BadGateway.code, ServiceUnavailable.code, GatewayTimeout.code})
_BEHIND_SERVER = frozenset({Obstacle.NO_ADDRESS, Obstacle.POOLLET_FAILED, Obstacle.RUNTIME_FAILED})

ASK_FOR_ROLE = "ask an administrator for the role"
_ROLE_TO_READ = re.compile(": ask an administrator for the role [^:;]*$")
"""The server's own remedy, which has no command."""

_SUBJECT = re.compile(r'^\w+ "[^"]+": ')


def explain(error: BaseException, namespace: str = "", config: ClientConfig | None = None) -> str:
    """
    Return the line for a session that could not be opened, or a request that failed.

    :param namespace: of the machine, for the message that it does not exist.
    """
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

    if isinstance(error, APIError):
        return _explain_refusal(error, namespace, config)
    if isinstance(error, KubeConfigError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


def _explain_refusal(error: Any, namespace: str, config: ClientConfig | None) -> str:
    kind, group, name = (error.details.get(key) or "" for key in ("kind", "group", "name"))
    if error.reason == "NotFound" and kind == SPACES.plural:
        return f"{error.message}; kubectl get spaces -A lists all spaces"
    if error.reason == "NotFound" and kind and name:
        singular = str(kind).removesuffix("s")
        qualified = f"{kind}.{group}" if group else kind
        message = str(error.message).replace(f'{qualified} "{name}"', f'{singular} "{name}"')
        is_machine = any(kind == dialect.workload.plural for dialect in DIALECTS)
        if namespace and is_machine and message.endswith(" not found"):
            message += f' in namespace "{namespace}"'
        return message
    if error.reason == "Forbidden":
        message = str(error.message)
        if remedy := role_to_request(message):
            if remedy.startswith(ASK_FOR_ROLE) and _may_be_mistyped(namespace, message):
                remedy = f'is the namespace "{namespace}" right? If so, {remedy}'
            message = f"{_ROLE_TO_READ.sub('', message)}; {remedy}"
        return message if "forbidden" in message else f"forbidden: {message}"
    if error.reason == "Unauthorized":
        return _unauthorized(str(error.message), config)
    if error.retry_after_seconds:
        return f"{error.message}; try again in {error.retry_after_seconds} s"
    message = str(error.message)
    obstacles = obstacles_of(error)
    # The message of another server's error names another server.
    is_ours = config is not None and config.server in message
    if config is not None and is_ours and Obstacle.SERVER_UNREACHABLE in obstacles:
        remedy = remedy_for(obstacles, config) or "twisted-exec doctor checks each step to it"
        return f"{message}; {remedy}"
    return message


def remedy_for(obstacles: Iterable[Obstacle], config: ClientConfig) -> str:
    """Return the remedy for a server that cannot be reached; empty if the cause is not known."""
    remedies = _UNREACHABLE_IN_CLEAR if config.url.scheme == "http" else _UNREACHABLE
    remedy = next((remedies[each] for each in obstacles if each in remedies), "")
    if remedy is _OTHER_CA and (origin := config.ca.path or config.ca.origin):
        return f"{origin} has another CA: {remedy}"
    return remedy


def not_allowed(line: str, name: str, act: str) -> str:
    """
    Return the line of :func:`explain` with its point first, if it is the long one of a missing role.

    :param act: what the user wants to do with the machine, such as ``open``.
    """
    if f"; to take over, {ASK_FOR_ROLE} " in line:
        act = "take over"
    elif not re.search(rf"(; |If so, ){ASK_FOR_ROLE} ", line):
        return line
    return f"you may not {act} {name}: {line}"


def doctor_hint(error: BaseException, name: str, namespace: str) -> str:
    """Return the next step for a machine whose server answers, but not its pool or runtime; empty for other errors."""
    if not isinstance(error, APIError) or error.code not in _FAILED_HOP:
        return ""
    if error.retry_after_seconds or _BEHIND_SERVER.isdisjoint(obstacles_of(error)):
        return ""
    return f"twisted-exec doctor {name} -n {namespace} says what to do"


def _may_be_mistyped(namespace: str, message: str) -> bool:
    """
    Return whether a refusal is about a machine of a namespace: the server does not tell a user without
    rights there whether it exists.
    """
    lacking = DENIED.search(message)
    return (
        lacking is not None
        and bool(namespace)
        and lacking["namespace"] == namespace
        and any(lacking["kind"] == dialect.workload.plural for dialect in DIALECTS)
    )


def role_to_request(message: str) -> str:
    """
    Return the remedy for a right that the user lacks.

    :return: empty for other messages, and for those that say what the user may do.
    """
    lacking = DENIED.search(message)
    if lacking is None:
        return ""
    takes_over = lacking["verb"] == "takeover"
    if not takes_over and message[lacking.end() :].startswith(": you may "):
        return ""
    remedy = ask_for_role(**lacking.groupdict(default=""))
    return f"to take over, {remedy}" if takes_over else remedy


def ask_for_role(
    user: str, verb: str, group: str, kind: str, subresource: str, namespace: str
) -> str:
    """
    Return the remedy for a right that a user lacks: the smallest role, if there is one, and the
    command that grants it.

    :param kind: the resource, such as ``machines``.
    :param namespace: empty for all.
    """
    from twisted_exec.auth.default_roles import CONSOLE_OBSERVER

    role, command = grant(user, verb, group, kind, subresource, namespace)
    if not role:
        return f"ask an administrator for a role with {verb} on {kind}"
    opens_console = bool(group) and (subresource == "exec" or verb == "drive")
    less = f" ({CONSOLE_OBSERVER} suffices for --read-only)" if opens_console else ""
    return f"{ASK_FOR_ROLE} {role}{less}: {command}"


def grant(
    user: str, verb: str, group: str, kind: str, subresource: str, namespace: str
) -> tuple[str, str]:
    """
    Return the smallest role with a right, or empty, and the command that grants it to a user.

    For the parameters see :func:`ask_for_role`.
    """
    from twisted_exec.auth.default_roles import smallest_role

    role = smallest_role(verb, group, kind, subresource)
    name = re.sub(r"[^a-z0-9]+", "-", f"{user}-{role}".lower()).strip("-")
    create = "rolebinding" if namespace else "clusterrolebinding"
    where = f" -n {namespace}" if namespace else ""
    command = (
        f"kubectl create {create} {name} --clusterrole={role} --user={shlex.quote(user)}{where}"
    )
    return role, command


def power_on(dialect: Dialect, name: str, namespace: str) -> str:
    """Return the command that powers a machine on."""
    patch = """-p '{"spec":{"power":"On"}}'"""
    return f"kubectl patch {dialect.noun} {name} -n {namespace} --type=merge {patch}"


def _unauthorized(message: str, config: ClientConfig | None) -> str:
    why = _SUBJECT.sub("", message)
    if "; " not in why:  # a Space's message has a remedy
        why += "; get new credentials, or check --context and --user"
    if config is None:
        return f"the server does not accept these credentials: {why}"
    return f"{not_accepted(config)}: {why}"


def not_accepted(config: ClientConfig) -> str:
    """Return which credentials, of which file, a server does not accept."""
    source = config.credentials_source
    if not (kind := config.kind_of_credentials):
        return f"{config.server} needs credentials, and {source or 'the kubeconfig'} has none"
    return f"{config.server} does not accept the {kind}{f' of {source}' if source else ''}"

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

from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.missing_right import MAY_OBSERVE, MissingRight, message_without_remedy
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    GatewayTimeout,
    ServiceUnavailable,
)
from twisted_exec.cli.advice import KUBECTL, Advice
from twisted_exec.cli.refusal_texts import lacking_right, lacking_rights

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
    Obstacle.NO_ANSWER: "see that the API server runs, and is neither stopped nor overloaded (its log)",
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
_TAKEOVER = "takeover"

_SUBJECT = re.compile(r'^\w+ "[^"]+": ')


def explain(
    error: BaseException,
    namespace: str = "",
    config: ClientConfig | None = None,
    advice: Advice = KUBECTL,
) -> str:
    """
    Return the line for a session that could not be opened, or a request that failed.

    For a request that this program makes again itself, see :func:`hindrance`.

    :param namespace: of the machine, for the message that it does not exist.
    """
    line = hindrance(error, namespace, config, advice)
    if isinstance(error, APIError) and error.retry_after_seconds:
        return f"{line}; try again in {error.retry_after_seconds} s"
    return line


def hindrance(
    error: BaseException,
    namespace: str = "",
    config: ClientConfig | None = None,
    advice: Advice = KUBECTL,
) -> str:
    """Return the line of :func:`explain` without the time after which the user tries again."""
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

    if isinstance(error, APIError):
        return advice.refused(_explain_refusal(error, namespace, config, advice))
    if isinstance(error, KubeConfigError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


def _explain_refusal(
    error: Any, namespace: str, config: ClientConfig | None, advice: Advice
) -> str:
    kind, group, name = (error.details.get(key) or "" for key in ("kind", "group", "name"))
    if error.reason == "NotFound" and kind == SPACES.plural:
        return f"{error.message}; {advice.list_spaces}"
    if error.reason == "NotFound" and kind and name:
        singular = str(kind).removesuffix("s")
        qualified = f"{kind}.{group}" if group else kind
        message = str(error.message).replace(f'{qualified} "{name}"', f'{singular} "{name}"')
        is_machine = any(kind == dialect.workload.plural for dialect in DIALECTS)
        if namespace and is_machine and message.endswith(" not found"):
            message += advice.not_found(namespace)
        return message
    if error.reason == "Forbidden":
        message, rights = str(error.message), lacking_rights(error)
        if rights and (remedy := role_to_request(error, advice)):
            if _may_be_mistyped(namespace, rights[-1]):
                remedy = in_right_namespace(namespace, remedy)
            message = f"{message_without_remedy(error)}; {remedy}"
        # The messages of kube-apiserver and of most of ours have the word, which is not said twice.
        return message if "forbidden" in message else f"forbidden: {message}"
    if error.reason == "Unauthorized":
        return _unauthorized(str(error.message), config)
    message = str(error.message)
    obstacles = obstacles_of(error)
    # The message of another server's error names another server.
    is_ours = config is not None and config.server in message
    if config is not None and is_ours and Obstacle.SERVER_UNREACHABLE in obstacles:
        remedy = (
            advice.unreachable
            or remedy_for(obstacles, config)
            or "twisted-exec doctor checks each step to it"
        )
        return f"{message}; {remedy}"
    return message


def remedy_for(obstacles: Iterable[Obstacle], config: ClientConfig) -> str:
    """Return the remedy for a server that cannot be reached; empty if the cause is not known."""
    remedies = _UNREACHABLE_IN_CLEAR if config.url.scheme == "http" else _UNREACHABLE
    remedy = next((remedies[obstacle] for obstacle in obstacles if obstacle in remedies), "")
    if remedy is _OTHER_CA and (origin := config.ca.path or config.ca.origin):
        return f"{origin} has another CA: {remedy}"
    return remedy


def not_allowed(error: BaseException, line: str, name: str, act: str) -> str:
    """
    Return the line of :func:`explain` with its point first, if it is the long one of a missing role.

    :param act: what the user wants to do with the machine, such as ``open``.
    """
    right = lacking_right(error) if isinstance(error, APIError) and role_to_request(error) else None
    if right is None:
        return line
    return f"you may not {'take over' if right.verb == _TAKEOVER else act} {name}: {line}"


def missing_right_of(error: BaseException) -> str:
    """Return which right a user lacks and who grants it, without the server's words; empty for other errors."""
    right = lacking_right(error) if isinstance(error, APIError) else None
    if right is None:
        return ""
    what = f"{right.verb} {right.resource}/{right.subresource}".removesuffix("/")
    where = f" in namespace {right.namespace}" if right.namespace else ""
    return f"you may not {what}{where}; {ask_for_role(right)}"


def doctor_hint(error: BaseException, name: str, namespace: str, advice: Advice = KUBECTL) -> str:
    """Return the next step for a machine whose server answers, but not its pool or runtime; empty for other errors."""
    if not isinstance(error, APIError) or error.code not in _FAILED_HOP:
        return ""
    if error.retry_after_seconds or _BEHIND_SERVER.isdisjoint(obstacles_of(error)):
        return ""
    return advice.doctor(name, namespace)


def in_right_namespace(namespace: str, remedy: str) -> str:
    """Return the remedy of a right that is missing in a namespace which may not exist."""
    return f'is the namespace "{namespace}" right? If so, {remedy}'


def _may_be_mistyped(namespace: str, right: MissingRight) -> bool:
    """
    Return whether a refusal is about a machine of a namespace: the server does not tell a user without
    rights there whether it exists.
    """
    return (
        bool(namespace)
        and right.namespace == namespace
        and right.verb != _TAKEOVER
        and any(right.resource == dialect.workload.plural for dialect in DIALECTS)
    )


def role_to_request(error: APIError, advice: Advice = KUBECTL) -> str:
    """
    Return the remedy for a right that the user lacks.

    :return: empty for other refusals, and for those that say what the user may do.
    """
    rights = lacking_rights(error)
    if not rights:
        return ""
    remedy = ask_for_role(*rights, advice=advice)
    if rights[0].verb == _TAKEOVER:
        return f"to take over, {remedy}"
    return "" if any(cause.get("reason") == MAY_OBSERVE for cause in error.causes) else remedy


def explain_withdrawal(message: str) -> str:
    """
    Return the message of a session that has ended because its user lost a right, with the remedy.

    :param message: of its end; it may have a remedy.
    """
    remedy = "" if ASK_FOR_ROLE in message else role_to_request(Forbidden(message))
    return f"{message}; {remedy}" if remedy else message


def ask_for_role(
    *rights: MissingRight, observing_helps: bool = True, advice: Advice = KUBECTL
) -> str:
    """
    Return the remedy for rights that a user lacks: the smallest roles, if there are any, and the
    commands that grant them.

    :param rights: at least one, of one user in one namespace.
    :param observing_helps: name the role for watching, too, for a right that opens a console.
    """
    from twisted_exec.api.agents import is_agent
    from twisted_exec.auth.default_roles import CONSOLE_OBSERVER, smallest_roles

    right = rights[-1]
    if _is_of_cluster(right):
        return _ask_for_right(right)
    roles = smallest_roles(rights)
    if is_agent(right.user) and not _OF_EDITORS.isdisjoint(roles):
        return _ask_for_right(right)
    if not roles:
        return f"ask an administrator for a role with {right.verb} on {right.resource}"
    commands = " && ".join(_grant_of(role, right) for role in roles)
    opens_console = bool(right.group) and (right.subresource == "exec" or right.verb == "drive")
    less = (
        f" ({CONSOLE_OBSERVER} suffices for {advice.read_only})"
        if opens_console and observing_helps and len(rights) == 1
        else ""
    )
    return f"{ASK_FOR_ROLE}{'s' * (len(roles) > 1)} {' and '.join(roles)}{less}: {commands}"


_OF_EDITORS = frozenset({"edit", "admin"})
"""Roles that include Secrets, tokens and the deletion of machines: too much for one right of an agent."""


def _is_of_cluster(right: MissingRight) -> bool:
    """Return whether a right is about pools or classes: a default role that has it allows much more, in all namespaces."""
    resources = [
        resource for dialect in DIALECTS for resource in (dialect.pool, dialect.workload_class)
    ]
    return any(
        (right.group, right.resource) == (resource.group, resource.plural) for resource in resources
    )


def _ask_for_right(right: MissingRight) -> str:
    resource = f"{right.resource}.{right.group}"
    if right.subresource:
        resource += f"/{right.subresource}"
    role = object_name(right.verb, right.resource, right.subresource)
    return (
        f"ask an administrator for this right: kubectl create clusterrole {role} --verb={right.verb} "
        f"--resource={resource}, and {_grant_of(role, right)}"
    )


def object_name(*parts: str) -> str:
    """Return a name of an object, made of other names."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def grant(right: MissingRight) -> tuple[str, str]:
    """Return the smallest role with a right, or empty, and the command that grants it to the user."""
    from twisted_exec.auth.default_roles import smallest_role

    role = smallest_role(right.verb, right.group, right.resource, right.subresource)
    return role, _grant_of(role, right)


def _grant_of(role: str, right: MissingRight) -> str:
    name = object_name(right.user, role)
    create = "rolebinding" if right.namespace else "clusterrolebinding"
    where = f" -n {right.namespace}" if right.namespace else ""
    user = shlex.quote(right.user)
    return f"kubectl create {create} {name} --clusterrole={role} --user={user}{where}"


def _unauthorized(message: str, config: ClientConfig | None) -> str:
    why = _SUBJECT.sub("", message)
    # A remedy of the server, or for a Space, follows a semicolon.  No program depends on this: without it the user
    # reads two remedies.
    if "; " not in why:
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

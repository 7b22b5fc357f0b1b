"""
Errors for refused requests, worded as Kubernetes words them.
"""

from __future__ import annotations

from twisted_exec.api.missing_right import NEVER_ALLOWED, MissingRight
from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.auth import default_roles
from twisted_exec.auth.rules import Attributes

_READING_ROLES = (
    default_roles.CONSOLE_OBSERVER,
    default_roles.CONSOLE_LOG_READER,
    default_roles.CONSOLE_SESSION_READER,
    default_roles.CONSOLE_RECORDING_READER,
)


def hidden(attributes: Attributes, reason: str) -> NotFound:
    """The 404 of an object that does not exist for the user."""
    group, resource = attributes.group, attributes.resource
    qualified = f"{resource}.{group}" if group else resource
    because = f": {reason}" if reason else ""
    message = f'{qualified} "{attributes.name}" not found{because}'
    return NotFound(resource, attributes.name, group, message)


def role_to_read(attributes: Attributes) -> str:
    """
    Return the remedy for a refusal to read what consoles show: logs, screens and recordings; empty
    for other refusals.
    """
    role = default_roles.smallest_role(
        attributes.verb, attributes.group, attributes.resource, attributes.subresource
    )
    where = (
        f'in the namespace "{attributes.namespace}"'
        if attributes.namespace
        else "in all namespaces"
    )
    return f"ask an administrator for the role {role} {where}" if role in _READING_ROLES else ""


def forbidden(
    attributes: Attributes, reason: str = "", remedy: str = "", *, lacking: str | None = ""
) -> Forbidden:
    """
    The refusal, worded as Kubernetes words it.

    :param lacking: the user who lacks the right; empty for the user of the request, ``None`` if no role gives it.
    """
    suffix = "".join(f": {each}" for each in (reason, remedy) if each)
    user = f'User "{attributes.user.name}" cannot {attributes.verb}'
    if not attributes.resource:
        return Forbidden(f'forbidden: {user} path "{attributes.path}"{suffix}')
    group, name, namespace = attributes.group, attributes.name, attributes.namespace
    resource = "/".join(filter(None, (attributes.resource, attributes.subresource)))
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    qualified = f"{attributes.resource}.{group}" if group else attributes.resource
    named = f'{qualified} "{name}"' if name else qualified
    message = (
        f'{named} is forbidden: {user} resource "{resource}" in API group "{group}" {scope}{suffix}'
    )
    right = MissingRight(
        lacking or attributes.user.name,
        attributes.verb,
        group,
        attributes.resource,
        attributes.subresource,
        namespace,
    )
    never = {"reason": NEVER_ALLOWED, "message": message}
    causes = [never if lacking is None else right.cause(message, remedy)]
    details = {"name": name, "group": group, "kind": attributes.resource, "causes": causes}
    return Forbidden(message, details=details)

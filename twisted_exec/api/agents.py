"""
The names of agents: programs that act for a person, with fewer rights.

An agent is the user ``agent:PERSON:LABEL``. The label has no colon, and the person's name may have some.
"""

from __future__ import annotations

import re

from twisted_exec.api.users import (
    ANONYMOUS,
    SERVICE_ACCOUNT_PREFIX,
    User,
    with_authenticated,
)

AGENTS = "agents"
"""The only group of an agent, besides ``system:authenticated``."""
LONGEST_SECONDS = 8 * 3600
"""The longest life of an agent's certificate."""

_PREFIX = "agent:"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?\Z")

PERSON_GROUPS = "agents.twisted-exec.dev/person-groups"
"""Extra key: the groups of the agent's person, when the agent's certificate was requested."""
PERSON_UID = "agents.twisted-exec.dev/person-uid"
"""Extra key: the UID of the agent's person."""


def agent_name(person: str, label: str) -> str:
    """Return the name of an agent."""
    return f"{_PREFIX}{person}:{label}"


def label_problem(label: str) -> str:
    """Return why an agent cannot have a label; empty if it can."""
    if _LABEL.match(label):
        return ""
    return (
        "the name of an agent has 1 to 32 lower-case letters, digits and '-', and no '-' at an end"
    )


def is_agent(name: str) -> bool:
    """Return whether a user's name is that of an agent, as far as its beginning says."""
    return name.startswith(_PREFIX)


def person_of(name: str) -> str:
    """
    Return the name of the person for whom a user acts; of a user who is no agent, the user's own.

    It is empty for a malformed name of an agent.
    """
    return name.removeprefix(_PREFIX).rpartition(":")[0] if is_agent(name) else name


def person_uid(user: User) -> str:
    """Return the UID of the person for whom a user acts; of a user who is no agent, the user's own."""
    return "".join(user.extra.get(PERSON_UID, ())[:1]) if is_agent(user.name) else user.uid


def person_behind(agent: User) -> User:
    """Return the person for whom an agent acts, with the groups that the agent's certificate has of them."""
    person = person_of(agent.name)
    groups = with_authenticated(person, agent.extra.get(PERSON_GROUPS, ()))
    return User(person, groups, person_uid(agent))


def is_person(name: str) -> bool:
    """Return whether a user of this name is a person, as far as the name says; false for an unknown user."""
    return name not in ("", ANONYMOUS) and not (
        name.startswith(SERVICE_ACCOUNT_PREFIX) or is_agent(name)
    )


def person_problem(user: User) -> str:
    """Return why a user can have no agents; empty if the user can."""
    if is_agent(user.name):
        return "an agent has no agents of its own"
    if user.impersonated_by is not None:
        return "an impersonated user has no agents: ask as yourself"
    if user.name.startswith("system:") or not is_person(user.name):
        return "a component, or a ServiceAccount, has no agents: ask with an account of your own"
    return ""


def reserved_problem(user: User) -> str:
    """Return why a credential other than an agent's certificate cannot name a user; empty if it can."""
    if is_agent(user.name):
        return f'names that begin with "{_PREFIX}" are those of agents'
    if AGENTS in user.groups:
        return f'the group "{AGENTS}" is that of agents: give your groups a prefix, or another name'
    return ""

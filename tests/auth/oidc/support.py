"""
Users of claims, without waiting.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.program.memory_processes import MemoryReactor
from twisted_exec.auth.expressions import Evaluator
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.oidc import users
from twisted_exec.auth.oidc.claims import Issuer


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of work that waits for nothing, or raise its error."""
    done: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(done.append)
    if isinstance(done[0], Failure):
        done[0].raiseException()
    return done[0]


def user_of(values: Mapping[str, Any], configured: Issuer) -> User:
    """
    As :func:`twisted_exec.auth.oidc.users.user_of`, with expressions that cost little.
    """
    evaluator = Evaluator(MemoryReactor(), lambda: ["evaluator"])
    user = at_once(users.user_of(values, configured, evaluator))
    assert isinstance(user, User)
    return user

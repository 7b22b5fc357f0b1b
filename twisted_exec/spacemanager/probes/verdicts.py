"""
What an API server's answers tell of a kubeconfig, without I/O.

Whether somebody is let in is only known from a question that nobody unknown is answered: ``/version`` and
``/readyz`` are open to everybody in Kubernetes.  So it is asked who we are.  What a server says in words is
not passed on: it was shown the credentials, and might say them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.conditions import ConditionValue

ANONYMOUS = "system:anonymous"

VALID: ConditionValue = ("True", "Accepted", "")
ANSWERS: ConditionValue = ("True", "Answers", "")
_NEW_ONES = "new credentials are needed"
_REFUSED: ConditionValue = (
    "False",
    "Refused",
    f"the API server does not take the credentials: {_NEW_ONES}",
)
_NOBODY: ConditionValue = ("False", "Anonymous", f"the API server knows us as nobody: {_NEW_ONES}")
_NO_SERVER: ConditionValue = ("False", "NoAPIServer", "what answers there is no API server")


@dataclass(frozen=True)
class ProbeResult:
    """
    What came of a probe.

    :param digest: of the kubeconfigs that it was made with.
    :param valid: of the condition CredentialsValid.
    :param ready: of the condition PhysicalSpaceReady.
    :param version: of the API server, such as ``v1.33.1``; empty when it was not told.
    """

    digest: str
    valid: ConditionValue
    ready: ConditionValue
    version: str = ""

    @property
    def is_refused(self) -> bool:
        """The credentials are not good, for sure."""
        return self.valid[0] == "False"

    @property
    def lives(self) -> bool:
        """An API server answered that knows us."""
        return self.valid[0] == "True"

    @property
    def answers(self) -> bool:
        """Somebody answered, whatever it was."""
        return self.valid[0] != "Unknown" or self.ready[0] != "Unknown"


def unreachable(digest: str, why: str) -> ProbeResult:
    """Nobody could look: what is there, and whether we would be let in, is not known."""
    told = ("Unknown", "Unreachable", why)
    return ProbeResult(digest, told, told)


def unusable(digest: str, why: str) -> ProbeResult:
    """There is no way to look: the kubeconfig is none."""
    return ProbeResult(digest, ("False", "Unusable", why), ("Unknown", "Unusable", why))


def who_verdict(code: int, body: bytes) -> ConditionValue | None:
    """
    What an answer to SelfSubjectReview means.

    :return: of CredentialsValid; ``None`` when the server does not have that review.
    """
    if code in (404, 405):
        return None
    if code in (200, 201):
        name = _name(body)
        return (_NOBODY if name == ANONYMOUS else VALID) if name else _NO_SERVER
    return may_verdict(code, body)


def may_verdict(code: int, body: bytes) -> ConditionValue:
    """What an answer to SelfSubjectAccessReview means, which servers have that are older."""
    if code in (200, 201):
        return VALID
    if code == 401:
        return _REFUSED
    if code == 403:  # who is let that little is known all the same
        return _NOBODY if ANONYMOUS.encode() in body else VALID
    if 300 <= code < 500 and code != 429:
        return _NO_SERVER
    return ("Unknown", "NotAnswered", f"the API server answers {code} to who we are")


def ready_verdict(code: int) -> ConditionValue:
    """What an answer of ``/readyz`` means, of a server that was asked before whether it knows us."""
    if code >= 500 or code == 429:
        return ("False", "NotReady", f"the API server answers {code} to /readyz")
    # It may be that we are not to see it, or that there is no such page: it answers, though.
    return ANSWERS


def version_of(code: int, body: bytes) -> str:
    """What ``/version`` says, or nothing."""
    try:
        told: Any = json.loads(body)["gitVersion"] if code == 200 else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return told[:64] if isinstance(told, str) and told.isprintable() else ""


def _name(body: bytes) -> str:
    try:
        name = json.loads(body)["status"]["userInfo"]["username"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""

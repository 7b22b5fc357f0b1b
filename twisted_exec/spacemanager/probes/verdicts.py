"""
Verdicts on a kubeconfig from an API server's answers, without I/O.

Only a request that requires authentication shows whether credentials are accepted: in Kubernetes,
``/version`` and ``/readyz`` are open to everyone.  So the probe requests its own identity.  The
server's texts are not passed on: it has received the credentials, and might repeat them.
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
_NOBODY: ConditionValue = (
    "False",
    "Anonymous",
    f"the API server takes these credentials for an anonymous user: {_NEW_ONES}",
)
_NO_SERVER: ConditionValue = (
    "False",
    "NoAPIServer",
    "the server that answers is not an API server",
)


@dataclass(frozen=True)
class ProbeResult:
    """
    Result of a probe.

    :param digest: digest of the probed kubeconfigs.
    :param valid: value of the condition CredentialsValid.
    :param ready: value of the condition PhysicalSpaceReady.
    :param version: version of the API server, such as ``v1.33.1``; empty if unknown.
    """

    digest: str
    valid: ConditionValue
    ready: ConditionValue
    version: str = ""

    @property
    def is_refused(self) -> bool:
        """True if the credentials were definitely rejected."""
        return self.valid[0] == "False"

    @property
    def lives(self) -> bool:
        """True if the API server accepted the credentials."""
        return self.valid[0] == "True"

    @property
    def answers(self) -> bool:
        """True if any server answered."""
        return self.valid[0] != "Unknown" or self.ready[0] != "Unknown"


def unreachable(digest: str, why: str) -> ProbeResult:
    """Return the result if no server was reached."""
    unknown = ("Unknown", "Unreachable", why)
    return ProbeResult(digest, unknown, unknown)


def unusable(digest: str, why: str) -> ProbeResult:
    """Return the result for an invalid kubeconfig."""
    return ProbeResult(digest, ("False", "Unusable", why), ("Unknown", "Unusable", why))


def who_verdict(code: int, body: bytes) -> ConditionValue | None:
    """
    Interpret the answer to a SelfSubjectReview.

    :return: value of CredentialsValid; ``None`` if the server lacks this review.
    """
    if code in (404, 405):
        return None
    if code in (200, 201):
        name = _name(body)
        return (_NOBODY if name == ANONYMOUS else VALID) if name else _NO_SERVER
    return may_verdict(code, body)


def may_verdict(code: int, body: bytes) -> ConditionValue:
    """Interpret the answer to a SelfSubjectAccessReview, which older servers have, too."""
    if code in (200, 201):
        return VALID
    if code == 401:
        return _REFUSED
    if code == 403:  # even without permissions, the user is authenticated
        return _NOBODY if ANONYMOUS.encode() in body else VALID
    if 300 <= code < 500 and code != 429:
        return _NO_SERVER
    return ("Unknown", "NotAnswered", f"the API server answers the identity review with {code}")


def ready_verdict(code: int) -> ConditionValue:
    """Interpret the answer of ``/readyz`` of an API server that accepts the credentials."""
    if code >= 500 or code == 429:
        return ("False", "NotReady", f"the API server answers {code} to /readyz")
    # Access may be forbidden, or the page may be missing, but the server answers.
    return ANSWERS


def version_of(code: int, body: bytes) -> str:
    """Return the version from ``/version``, or empty."""
    try:
        version: Any = json.loads(body)["gitVersion"] if code == 200 else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version[:64] if isinstance(version, str) and version.isprintable() else ""


def _name(body: bytes) -> str:
    try:
        name = json.loads(body)["status"]["userInfo"]["username"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""

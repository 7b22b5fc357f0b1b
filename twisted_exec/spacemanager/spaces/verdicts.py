"""
Verdicts on a kubeconfig, from the answers to a probe.

Only a request that requires authentication shows whether credentials are accepted, so the probe
requests its own identity: in Kubernetes, ``/version`` and ``/readyz`` are usually open to everyone.
The server's messages are not passed on: the server has received the credentials, and might repeat
them.
"""

from __future__ import annotations

import json

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
    """
    Interpret the answer to a SelfSubjectAccessReview, or an answer to a SelfSubjectReview that
    names no user.

    :return: value of CredentialsValid.
    """
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


def _name(body: bytes) -> str:
    try:
        name = json.loads(body)["status"]["userInfo"]["username"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""

"""
Admission of CertificateSigningRequests: their requesters, and the rights to approve and sign.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api import times
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, Object
from twisted_exec.api.kinds.certificates import (
    GROUP,
)
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.interfaces import CREATE, UPDATE, Change, IAdmission
from twisted_exec.apiserver.signing.agents import check_requester
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.auth.rules import Attributes


@implementer(IAdmission)
class SigningRights:
    """
    Records the requester and missing times of conditions, and restricts approval and signing.

    As the admission plugins ``CertificateApproval`` and ``CertificateSigning`` of Kubernetes.
    """

    def __init__(self, authorizer: IAuthorizer, now: Callable[[], float] = time.time) -> None:
        self._authorizer, self._now = authorizer, now

    def admit(self, change: Change) -> Deferred[None]:
        if change.kind is not CERTIFICATESIGNINGREQUESTS or change.new is None:
            return succeed(None)
        if change.operation == CREATE:
            check_requester(change.new, change.user)
            change.new["spec"].pop("extra", None)  # else a user without extra could claim another's
            change.new["spec"] |= _requester(change.user)
            return succeed(None)
        verb = {"approval": "approve", "status": "sign"}.get(change.subresource)
        if change.operation != UPDATE or verb is None:
            return succeed(None)
        status, now = change.new["status"], times.timestamp(self._now())
        missing = {"lastUpdateTime": now, "lastTransitionTime": now}
        if "conditions" in status:
            status["conditions"] = [{**missing, **each} for each in status["conditions"]]
        return Deferred.fromCoroutine(self._confirm(change, verb))

    async def _confirm(self, change: Change, verb: str) -> None:
        signer = change.obj["spec"]["signerName"]
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            attributes = Attributes(
                change.user, verb, group=GROUP, version="v1", resource="signers", name=name
            )
            if (await self._authorizer.authorize(attributes)).allows_everything:
                return
        raise Forbidden(
            f'certificatesigningrequests "{change.obj["metadata"]["name"]}" is forbidden: user '
            f'"{change.user.name}" is not permitted to {verb} requests with signerName "{signer}"'
        )


def _requester(user: User) -> Object:
    requester: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    if user.extra:
        requester["extra"] = {key: list(values) for key, values in user.extra.items()}
    return requester

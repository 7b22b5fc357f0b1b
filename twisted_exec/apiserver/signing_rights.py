"""
Who may decide on CertificateSigningRequests, and bring certificates to them.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, Object
from twisted_exec.api.kinds.certificates import GROUP
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.interfaces import CREATE, UPDATE, Change, IAdmission
from twisted_exec.auth.interfaces import Attributes, IAuthorizer, User


@implementer(IAdmission)
class SigningRights:
    """
    Notes who asks for certificates, and lets only those decide and sign who may.

    As Kubernetes: ``approve`` and ``sign`` on the resource ``signers`` of the name that the
    request names.
    """

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._authorizer = authorizer

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`; a new request is told, in place, who made it."""
        if change.kind is not CERTIFICATESIGNINGREQUESTS or change.new is None:
            return succeed(None)
        if change.operation == CREATE:
            change.new["spec"].pop("extra", None)  # who has none could bring another's
            change.new["spec"] |= _requester(change.user)
            return succeed(None)
        verb = {"approval": "approve", "status": "sign"}.get(change.subresource)
        if change.operation != UPDATE or verb is None:
            return succeed(None)
        return Deferred.fromCoroutine(self._confirm(change, verb))

    async def _confirm(self, change: Change, verb: str) -> None:
        signer = change.obj["spec"]["signerName"]
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            wanted = Attributes(
                change.user, verb, group=GROUP, version="v1", resource="signers", name=name
            )
            if (await self._authorizer.authorize(wanted)).allowed:
                return
        raise Forbidden(
            f'certificatesigningrequests "{change.obj["metadata"]["name"]}" is forbidden: user '
            f'"{change.user.name}" is not permitted to {verb} requests with signerName "{signer}"'
        )


def _requester(user: User) -> Object:
    told: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    if user.extra:
        told["extra"] = {key: list(values) for key, values in user.extra.items()}
    return told

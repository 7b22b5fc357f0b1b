"""
The controller that approves, signs and removes CertificateSigningRequests.

Signed, denied and failed requests are deleted after an hour, others after a day.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api import times
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, NODES, Object
from twisted_exec.api.kinds.certificates import (
    APPROVED,
    DENIED,
    FAILED,
    GROUP,
    certificate_of,
    request_of,
)
from twisted_exec.api.status import APIError, Conflict, Forbidden, NotFound
from twisted_exec.apiserver.controllers.coalescing import CoalescedRuns
from twisted_exec.apiserver.controllers.event_recorder import NORMAL, OURSELVES, WARNING, Reports
from twisted_exec.apiserver.interfaces import CREATE, UPDATE, Change, IAdmission
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import RequestTarget, Verbs
from twisted_exec.apiserver.signers import (
    CLIENT,
    FOR_SERVERS,
    NOBODY,
    NODE_CLIENT,
    NODE_SERVING,
    SERVING,
    Clients,
    ISigner,
    NodeClient,
    NodeServing,
    PoolletServing,
    RequestedSubject,
    addresses_of,
    subject_of,
)
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.storage.follower import log_failure
from twisted_exec.storage.interfaces import Event, IStorage, IWatch
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.pki import Authority


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


LOOK_SECONDS = 60.0
DECIDED_SECONDS = 3600.0
PENDING_SECONDS = 24 * 3600.0
DEFAULT_LIFE_SECONDS = 365 * 24 * 3600.0

_RETRY_SECONDS = 5.0
_OPTIONS = WriteOptions(manager=MANAGER)


@dataclass(frozen=True)
class CAPair:
    """Paths of a CA's certificate and key (PEM)."""

    certificate: str
    key: str

    def reloading(self, clock: IReactorTime) -> Reloading[Authority]:
        """Return the authority."""

        def parsed(certificate: bytes, key: bytes) -> Authority:
            return Authority.load(
                certificate,
                key,
                certificate_what=f"signing certificate {self.certificate!r}",
                key_what=f"signing key {self.key!r}",
            )

        return Reloading([self.certificate, self.key], parsed, clock)


class Signer(Service):
    """
    Approves, signs and removes CertificateSigningRequests.

    :param verbs: without admission.
    :param authorizer: decides who may ask for a client certificate.
    :param authorities: CAs by name of the signer.
    :param life_seconds: longest lifetime of a certificate.
    :param own_names: the API server's own names in certificates of the CA that signs serving
        certificates.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        verbs: Verbs,
        authorizer: IAuthorizer,
        dialects: Sequence[Dialect],
        authorities: Mapping[str, Reloading[Authority]],
        clock: IReactorTime,
        now: Callable[[], float],
        life_seconds: float = DEFAULT_LIFE_SECONDS,
        own_names: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._storage, self._verbs = storage, verbs
        self._dialects, self._authorities = dialects, authorities
        self._signers: Mapping[str, ISigner] = {
            SERVING: PoolletServing(dialects, storage, own_names),
            CLIENT: Clients(dialects, authorizer),
            NODE_SERVING: NodeServing(storage, own_names),
            NODE_CLIENT: NodeClient(authorizer),
        }
        self._clock, self._now, self._life_seconds = clock, now, life_seconds
        self._reports = Reports(verbs, "signer", now)
        self._pending_reasons: dict[str, str] = {}
        self._shapes: dict[str, tuple[str, RequestedSubject]] = {}
        self._left: dict[str, int] = {}  # the round in which a request was left pending
        self._round = 0
        self._watches: list[IWatch] = []
        self._passes = CoalescedRuns(self._pass, self._failed, self._look)
        self._retry: IDelayedCall | None = None
        self._loop = LoopingCall(self._look_anew)
        self._loop.clock = clock

    def startService(self) -> None:
        super().startService()
        watch = self._storage.watch
        self._watches = [watch(CERTIFICATESIGNINGREQUESTS.resource, None, self._changed)]
        for reporting in (*(dialect.pool for dialect in self._dialects), NODES.resource):
            self._watches.append(watch(reporting, None, self._addresses_changed))
        self._loop.start(LOOK_SECONDS)

    def stopService(self) -> None:
        super().stopService()
        for each in self._watches:
            each.stop()
        self._watches.clear()
        self._loop.stop()
        if self._retry is not None and self._retry.active():
            self._retry.cancel()

    def _changed(self, event: Event) -> None:
        self._look()

    def _addresses_changed(self, event: Event) -> None:
        before = addresses_of(event.previous or {})
        if addresses_of(event.obj) != before:
            self._look_anew()

    def _look_anew(self) -> None:
        self._round += 1
        self._look()

    def _look(self) -> None:
        if self.running:
            self._passes.ask()

    def _failed(self, failure: Failure) -> None:
        log_failure(self._log, "cannot process certificate signing requests", failure)
        self._look_later()

    def _look_later(self) -> None:
        if self.running and (self._retry is None or not self._retry.active()):
            self._retry = self._clock.callLater(_RETRY_SECONDS, self._look)

    async def _pass(self) -> None:
        requests = (await self._storage.list(CERTIFICATESIGNINGREQUESTS.resource)).items
        names = {csr["metadata"]["name"] for csr in requests}
        self._pending_reasons = {
            name: shape for name, shape in self._pending_reasons.items() if name in names
        }
        uids = {csr["metadata"]["uid"] for csr in requests}
        self._shapes = {uid: shape for uid, shape in self._shapes.items() if uid in uids}
        self._left = {uid: left for uid, left in self._left.items() if uid in uids}
        for csr in requests:
            try:
                await self._one(csr)
            except (Conflict, NotFound):
                continue  # changed meanwhile; that change triggers the next run
            except (APIError, TLSConfigError) as error:
                name = csr["metadata"]["name"]
                self._log.error("request {name} waits: {error}", name=name, error=error)
                self._look_later()

    async def _one(self, csr: Object) -> None:
        if self._is_over(csr):
            target = RequestTarget(CERTIFICATESIGNINGREQUESTS, "", csr["metadata"]["name"])
            await self._verbs.delete(OURSELVES, target, _OPTIONS, {"uid": csr["metadata"]["uid"]})
            return
        if csr["spec"]["signerName"] not in self._authorities or _is_decided(csr):
            return
        uid, (problem, subject) = csr["metadata"]["uid"], self._shape(csr)
        this_round = self._round  # addresses may change while we await below
        if condition_of(csr, APPROVED):
            await self._sign(csr, problem)
        elif self._left.get(uid) == this_round:
            return  # nothing changed that could affect this request
        elif problem:
            self._left[uid] = this_round
            await self._leave(csr, f"{problem}; it cannot be signed so, even when it is approved")
        elif problem := await self._signers[csr["spec"]["signerName"]].refusal(csr, subject):
            self._left[uid] = this_round
            name = csr["metadata"]["name"]
            await self._leave(csr, f"{problem}; kubectl certificate approve {name}, or deny it")
        else:
            await self._approve(csr)

    def _shape(self, csr: Object) -> tuple[str, RequestedSubject]:
        uid = csr["metadata"]["uid"]
        if uid not in self._shapes:
            subject = NOBODY
            try:
                request = request_of(csr)
                problem = self._signers[csr["spec"]["signerName"]].shape_problem(csr, request)
                subject = subject if problem else subject_of(request)
            except ValueError as error:
                problem = str(error)
            self._shapes[uid] = problem, subject
        return self._shapes[uid]

    def _is_over(self, csr: Object) -> bool:
        moments = [
            each.get("lastUpdateTime") for each in csr.get("status", {}).get("conditions", [])
        ]
        newest = max(
            map(times.seconds, filter(None, [csr["metadata"]["creationTimestamp"], *moments]))
        )
        limit = DECIDED_SECONDS if _is_decided(csr) else PENDING_SECONDS
        return self._now() - newest > limit

    async def _approve(self, csr: Object) -> None:
        message = "requested by its subject, or by a user who may request such certificates"
        await self._tell(csr, "approval", APPROVED, "AutoApproved", message)

    async def _leave(self, csr: Object, message: str) -> None:
        name = csr["metadata"]["name"]
        if self._pending_reasons.get(name) != message:
            self._pending_reasons[name] = message
            self._log.info("request {name} waits: {why}", name=name, why=message)
            await self._reports.tell(
                CERTIFICATESIGNINGREQUESTS, csr, WARNING, "NotApproved", message
            )

    async def _sign(self, csr: Object, problem: str) -> None:
        if problem:
            await self._tell(csr, "status", FAILED, "SignerValidationFailure", problem)
            return
        request, spec = request_of(csr), csr["spec"]
        subject = subject_of(request)
        seconds = min(spec.get("expirationSeconds", self._life_seconds), self._life_seconds)
        signer = spec["signerName"]
        certificate = (
            self._authorities[signer]
            .get()
            .certify(
                request.public_key(),
                subject.common_name,
                self._signers[signer].organizations(subject),
                subject.names if signer in FOR_SERVERS else (),
                now=datetime.fromtimestamp(self._now(), UTC),
                life=timedelta(seconds=seconds),
            )
        )
        encoded = base64.b64encode(certificate).decode("ascii")
        await self._write(csr, "status", {"certificate": encoded})
        self._log.info(
            "request {name}: a certificate for {user}, good for {days:g} days",
            name=csr["metadata"]["name"],
            user=subject.common_name,
            days=seconds / 86400,
        )
        await self._reports.tell(
            CERTIFICATESIGNINGREQUESTS, csr, NORMAL, "Issued", "the certificate is in its status"
        )

    async def _tell(
        self, csr: Object, subresource: str, kind: str, reason: str, message: str
    ) -> None:
        moment = times.timestamp(self._now())
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastUpdateTime": moment,
            "lastTransitionTime": moment,
        }
        conditions = [*csr.get("status", {}).get("conditions", []), condition]
        await self._write(csr, subresource, {"conditions": conditions})

    async def _write(self, csr: Object, subresource: str, status: Mapping[str, Any]) -> None:
        name = csr["metadata"]["name"]
        target = RequestTarget(CERTIFICATESIGNINGREQUESTS, "", name, subresource)
        body = {**csr, "status": {**csr.get("status", {}), **status}}
        await self._verbs.update(OURSELVES, target, body, _OPTIONS)


def _is_decided(csr: Object) -> bool:
    return bool(certificate_of(csr) or condition_of(csr, DENIED) or condition_of(csr, FAILED))

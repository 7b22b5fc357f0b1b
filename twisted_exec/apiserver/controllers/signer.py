"""
The controller that approves, signs and removes CertificateSigningRequests.

Signed, denied and failed requests are deleted after an hour, others after a day.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api import times
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, NODES, Object
from twisted_exec.api.kinds.certificates import (
    APPROVED,
    DENIED,
    FAILED,
    certificate_of,
    request_of,
)
from twisted_exec.api.kinds.events import NORMAL, WARNING
from twisted_exec.api.status import APIError, Conflict, NotFound, ServiceUnavailable
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.apiserver.signing.agents import AgentClient
from twisted_exec.apiserver.signing.clients import Clients
from twisted_exec.apiserver.signing.interfaces import (
    AGENT,
    CLIENT,
    FOR_SERVERS,
    NODE_CLIENT,
    NODE_SERVING,
    SERVING,
    ISigner,
)
from twisted_exec.apiserver.signing.nodes import NodeClient, NodeServing
from twisted_exec.apiserver.signing.poollets import PoolletServing
from twisted_exec.apiserver.signing.requests import (
    NOBODY,
    RequestedSubject,
    addresses_of,
    subject_of,
)
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.interfaces import DELETED, Event, IStorage
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.pki.authority import Authority

LOOK_SECONDS = 60.0
DECIDED_SECONDS = 3600.0
PENDING_SECONDS = 24 * 3600.0
DEFAULT_LIFE_SECONDS = 365 * 24 * 3600.0

_OPTIONS = WriteOptions(manager=MANAGER)
_FAILED = "the signer failed; the log of the API server says more"

ReadOnlyObject = Mapping[str, Any]


class Step(Enum):
    """What to do with a request."""

    DELETE = auto()
    SIGN = auto()
    """It is approved."""
    REVIEW = auto()
    """Approve it, or say why people must decide."""
    NOTHING = auto()


def plan(csr: ReadOnlyObject, signers: Collection[str], now: float) -> Step:
    """
    Decide what to do with a request.

    :param signers: names of the signers that this server has.
    :param now: seconds since the epoch.
    """
    moments = [each.get("lastUpdateTime") for each in csr.get("status", {}).get("conditions", [])]
    created = csr["metadata"]["creationTimestamp"]
    newest = max(map(times.seconds, filter(None, [created, *moments])))
    if now - newest > (DECIDED_SECONDS if _is_decided(csr) else PENDING_SECONDS):
        return Step.DELETE
    if csr["spec"]["signerName"] not in signers or _is_decided(csr):
        return Step.NOTHING
    return Step.SIGN if condition_of(csr, APPROVED) else Step.REVIEW


@dataclass
class _Request:
    csr: Object
    shape: tuple[str, RequestedSubject] | None = None
    """The problem that no approval changes, and the subject."""
    message: str = ""
    """The last Event: why the request waits."""


class Signer(StoreFollower):
    """
    Approves, signs and removes CertificateSigningRequests.

    :param verbs: without admission.
    :param authorizer: decides who may ask for a client certificate.
    :param authorities: CAs by name of the signer.
    :param life_seconds: longest lifetime of a certificate.
    :param own_names: the API server's own names in certificates of the CA that signs serving
        certificates.
    :param now: seconds since the epoch.
    :param metrics: of the program's queues.
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
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._verbs = verbs
        self._dialects, self._authorities = dialects, authorities
        self._signers: Mapping[str, ISigner] = {
            SERVING: PoolletServing(dialects, storage, own_names),
            CLIENT: Clients(dialects, authorizer),
            NODE_SERVING: NodeServing(storage, own_names),
            NODE_CLIENT: NodeClient(authorizer),
            AGENT: AgentClient(authorizer),
        }
        self._now, self._life_seconds = now, life_seconds
        self._recorder = own_recorder(
            verbs, clock, now, about=CERTIFICATESIGNINGREQUESTS.resource, component="signer"
        )
        self._requests: dict[str, _Request] = {}
        self._queue: WorkQueue[str] = WorkQueue(self._look, clock, metrics=metrics.of("signer"))
        self.add_part(self._recorder)
        self.add_part(self._queue)

    def stopService(self) -> Deferred[None]:
        self._requests.clear()
        return super().stopService()

    def followed(self) -> list[Followed]:
        resource = CERTIFICATESIGNINGREQUESTS.resource
        requests = Followed(resource, self._changed, listed_as_added(self._changed))
        reporting = (*(dialect.pool for dialect in self._dialects), NODES.resource)
        return [requests, *(Followed(each, self._addresses_changed) for each in reporting)]

    def _changed(self, event: Event) -> None:
        csr, name = event.obj, event.obj["metadata"]["name"]
        known = self._requests.get(name)
        if event.type == DELETED:
            self._requests.pop(name, None)
            self._queue.forget(name)
            return
        if known is None or known.csr["metadata"]["uid"] != csr["metadata"]["uid"]:
            self._requests[name] = _Request(csr)
        else:
            known.csr = csr
        self._queue.add(name)

    def _addresses_changed(self, event: Event) -> None:
        before = addresses_of(event.previous or {})
        if addresses_of(event.obj) != before:
            for name in self._requests:
                self._queue.hurry(name)

    async def _look(self, name: str) -> float | None:
        request = self._requests.get(name)
        if request is None:
            return None
        try:
            await self._process(request)
        except (Conflict, NotFound):
            pass  # changed meanwhile; that change triggers the next run
        except CancelledError:
            raise
        except Exception as error:
            message = str(error) if isinstance(error, APIError) else _FAILED
            await self._tell_once(request, "NotProcessed", message)
            raise
        return LOOK_SECONDS

    async def _process(self, request: _Request) -> None:
        csr = request.csr
        step = plan(csr, self._authorities, self._now())
        if step is Step.DELETE:
            target = RequestTarget(CERTIFICATESIGNINGREQUESTS, "", csr["metadata"]["name"])
            await self._verbs.delete(OURSELVES, target, _OPTIONS, {"uid": csr["metadata"]["uid"]})
        elif step is Step.SIGN:
            await self._sign(csr, self._shape(request)[0])
        elif step is Step.REVIEW:
            await self._review(request)

    async def _review(self, request: _Request) -> None:
        csr, (problem, subject) = request.csr, self._shape(request)
        if problem:
            message = f"{problem}; it cannot be signed so, even when it is approved"
            await self._tell_once(request, "NotApproved", message)
        elif problem := await self._signers[csr["spec"]["signerName"]].refusal(csr, subject):
            name = csr["metadata"]["name"]
            message = f"{problem}; kubectl certificate approve {name}, or deny it"
            await self._tell_once(request, "NotApproved", message)
        else:
            await self._approve(csr)

    def _shape(self, request: _Request) -> tuple[str, RequestedSubject]:
        if request.shape is None:
            csr, subject = request.csr, NOBODY
            try:
                asked = request_of(csr)
                problem = self._signers[csr["spec"]["signerName"]].shape_problem(csr, asked)
                subject = subject if problem else subject_of(asked)
            except ValueError as error:
                problem = str(error)
            request.shape = problem, subject
        return request.shape

    async def _approve(self, csr: Object) -> None:
        message = "requested by its subject, or by a user who may request such certificates"
        await self._tell(csr, "approval", APPROVED, "AutoApproved", message)

    async def _tell_once(self, request: _Request, reason: str, message: str) -> None:
        if request.message != message:
            request.message, csr = message, request.csr
            self._log.warn("request {name} waits: {why}", name=csr["metadata"]["name"], why=message)
            self._recorder.record(csr, WARNING, reason, message)

    async def _sign(self, csr: Object, problem: str) -> None:
        if problem:
            await self._tell(csr, "status", FAILED, "SignerValidationFailure", problem)
            return
        request, spec = request_of(csr), csr["spec"]
        subject = subject_of(request)
        signer = spec["signerName"]
        longest = min(self._life_seconds, self._signers[signer].longest_seconds)
        seconds = min(spec.get("expirationSeconds", longest), longest)
        try:
            authority = self._authorities[signer].get()
            certificate = authority.certify(
                request.public_key(),
                subject.common_name,
                self._signers[signer].organizations(subject),
                subject.names if signer in FOR_SERVERS else (),
                uris=self._signers[signer].uris(csr),
                now=datetime.fromtimestamp(self._now(), UTC),
                life=timedelta(seconds=seconds),
            )
        except TLSConfigError as error:
            raise ServiceUnavailable(str(error)) from error
        encoded = base64.b64encode(certificate).decode("ascii")
        await self._write(csr, "status", {"certificate": encoded})
        self._log.info(
            "request {name}: a certificate for {user}, good for {days:g} days",
            name=csr["metadata"]["name"],
            user=subject.common_name,
            days=seconds / 86400,
        )
        self._recorder.record(csr, NORMAL, "Issued", "the certificate is in its status")

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


def _is_decided(csr: ReadOnlyObject) -> bool:
    return bool(certificate_of(csr) or condition_of(csr, DENIED) or condition_of(csr, FAILED))

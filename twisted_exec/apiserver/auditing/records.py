"""
The audit records of requests.

A request has at most one record. Sessions have records of their own, whatever the policy says.
Requests about Secrets and tokens are recorded without bodies.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.apiserver.auditing.policy import AuditLevel, AuditPolicy, AuditRule
from twisted_exec.apiserver.serving.requests import query_of, request_of
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedEndpoint, GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import outcome
from twisted_exec.streaming.sessions.registry import Sessions

LARGEST_BODY_BYTES = 32 << 10
"""A larger body is left out of the record."""

_VERBS = {b"POST": "create", b"PUT": "update", b"PATCH": "patch", b"DELETE": "delete"}
_UNKNOWN_USER = User("")


class AuditedDispatcher(GatedDispatcher):
    """Records requests besides sessions."""

    _log = Logger()

    def __init__(
        self,
        gate: Gate,
        routes: GatedRoutes,
        sessions: Sessions,
        trail: Trail,
        policy: AuditPolicy,
        clock: IReactorTime,
        machines: Collection[str],
    ) -> None:
        super().__init__(gate, routes, sessions)
        self._trail, self._policy, self._clock = trail, policy, clock
        self._machines, self._records_reads = machines, policy.covers_reads

    async def answer_without_session(
        self, context: RequestContext, endpoint: GatedEndpoint
    ) -> None:
        is_change = context.request.method in _VERBS
        if endpoint.is_open or not (is_change or self._records_reads):
            await super().answer_without_session(context, endpoint)
            return
        record = _Record(context, self._clock.seconds())
        try:
            await self._gate.identify(context)
            record.choose(self._policy)
            await endpoint.handler(context)
        except BaseException as problem:
            self._write(record, *outcome(problem))
            raise
        self._write(record, context.request.code, "")

    def _write(self, record: _Record, code: int, reason: str) -> None:
        if not record.is_chosen:  # authentication failed
            record.choose(self._policy)
        if record.rule.level is not AuditLevel.NONE:
            seconds = max(0.0, self._clock.seconds() - record.began)
            fields = {"code": code, "seconds": round(seconds, 3), "reason": reason}
            facts = record.facts(self._machines)
            try:
                self._trail.record("request", facts, {**record.fields(), **fields})
            except Exception:  # whatever a client sent: the response is on its way already
                self._log.failure("request {session} has no audit record", session=facts["session"])


class _Record:
    rule: AuditRule
    level = AuditLevel.NONE
    is_chosen = False
    _body = b""

    def __init__(self, context: RequestContext, began: float) -> None:
        self._context, self.began = context, began

    def choose(self, policy: AuditPolicy) -> None:
        self.is_chosen = True
        self._attributes = attributes_of_request(self._context)
        self.rule = policy.rule_for(self._attributes)
        self.level = self.rule.level
        if self.level is AuditLevel.NONE:
            return
        if is_confidential(self._attributes):
            self.level = AuditLevel.METADATA
        request = request_of(self._context)
        request.setHeader(b"Audit-Id", request.subject.session.encode("ascii"))
        if self.level >= AuditLevel.REQUEST:
            self._body = request.content.getvalue()  # twisted.web closes it with the response
        if self.level is AuditLevel.REQUEST_RESPONSE:
            request.keeps_response = True

    def facts(self, machines: Collection[str]) -> dict[str, str]:
        subject, target = self._context.subject, self._attributes
        resource = f"{target.resource}.{target.group}" if target.group else target.resource
        return {
            "session": subject.session,
            "user": subject.user,
            "namespace": target.namespace,
            "machine": self._name if resource in machines else "",
            "resource": resource,
            "uid": str(self._metadata.get("uid", "")),
            "subresource": target.subresource,
            "caller": subject.caller,
            "agent": subject.agent,
            "address": subject.address,
        }

    @property
    def _name(self) -> str:
        return self._attributes.name or str(self._metadata.get("name", ""))

    @property
    def _metadata(self) -> Object:
        changed: Object = request_of(self._context).changed or {}
        metadata: Object = changed.get("metadata", {})
        return metadata

    @property
    def _other_user(self) -> str:
        target, changed = self._attributes, request_of(self._context).changed
        requests = CONSOLEREQUESTS.resource
        if changed is None or (target.group, target.resource) != (requests.group, requests.plural):
            return ""
        user = str(changed["spec"].get("user", ""))
        return user if user != self._context.subject.user else ""

    def fields(self) -> dict[str, Any]:
        request, target = request_of(self._context), self._attributes
        fields: dict[str, Any] = {"verb": target.verb, "name": self._name}
        if not target.resource:
            fields["path"] = target.path
        if other := self._other_user:
            fields["other_user"] = other
        if query_of(self._context).texts("dryRun"):
            fields["dry_run"] = True
        bodies = {}
        if self.level >= AuditLevel.REQUEST:
            bodies["request_object"] = self._body
        if self.level >= AuditLevel.REQUEST_RESPONSE:
            bodies["response_object"] = request.response_body
        for key, body in bodies.items():
            if len(body) > LARGEST_BODY_BYTES:
                fields["truncated"] = True
            elif body:
                fields[key] = _document(body, self.rule)
        return fields


def attributes_of_request(context: RequestContext) -> Attributes:
    """
    Return the verb and the object of a request, without its body.

    Source: ``k8s.io/apiserver/pkg/endpoints/request/requestinfo.go``.
    """
    user = context.user if context.is_identified else _UNKNOWN_USER
    method, segments = context.request.method, list(context.segments)
    core = segments[:1] == ["api"]
    at = 2 if core else 3
    if segments[:1] not in (["api"], ["apis"]) or len(segments) <= at:
        verb = _VERBS.get(method, method.decode("ascii", "replace").lower())
        return Attributes(user, verb, path="/" + "/".join(segments))
    group, version = ("", segments[1]) if core else (segments[1], segments[2])
    rest, namespace = segments[at:], ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        rest = rest[2:] if len(rest) > 2 and rest[2] not in ("status", "finalize") else rest
    resource, name, subresource = [*rest, "", ""][:3]
    verb = _VERBS.get(method, "")
    if not verb:
        watches = query_of(context).flag("watch")
        verb = "get" if name else "watch" if watches else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Attributes(user, verb, group, version, resource, subresource, namespace, name)


def is_confidential(attributes: Attributes) -> bool:
    """Return whether bodies of the request may have a Secret or a token."""
    if attributes.group == "authentication.k8s.io" or attributes.subresource == "token":
        return True
    return not attributes.group and attributes.resource == "secrets"


def _document(body: bytes, rule: AuditRule) -> Any:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    if rule.omits_managed_fields and isinstance(document, dict):
        for each in [document, *(document.get("items") or [])]:
            if isinstance(each, dict) and isinstance(each.get("metadata"), dict):
                each["metadata"].pop("managedFields", None)
    return document

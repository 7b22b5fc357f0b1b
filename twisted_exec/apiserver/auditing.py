"""
Audit of requests: the policy that selects them, and their records.

The policy has the format of Kubernetes: ``audit.k8s.io/v1``, kind ``Policy``. Source:
``k8s.io/apiserver/pkg/audit/policy/checker.go``.

A request has at most one record. Sessions have records of their own, whatever the policy says.
Requests about Secrets and tokens are recorded without bodies.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.apiserver.serving.filters import query_of, request_of
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedEndpoint, GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.audit import Trail
from twisted_exec.program.config_file import Reader, read_yaml
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import outcome
from twisted_exec.streaming.sessions.registry import Sessions

API_VERSIONS = ("audit.k8s.io/v1",)
READS = frozenset({"get", "list", "watch"})
_STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_COMPLETE = "ResponseComplete"


class AuditLevel(IntEnum):
    """The recorded parts of a request; each level includes the lower ones."""

    NONE = 0
    METADATA = 1
    """User, verb, object and result."""
    REQUEST = 2
    """Also the body of the request."""
    REQUEST_RESPONSE = 3
    """Also the body of the response."""


_LEVELS = {
    "None": AuditLevel.NONE,
    "Metadata": AuditLevel.METADATA,
    "Request": AuditLevel.REQUEST,
    "RequestResponse": AuditLevel.REQUEST_RESPONSE,
}


@dataclass(frozen=True)
class Resources:
    """
    Resources of one API group.

    :param resources: such as ``pods``, ``pods/status``, ``pods/*``, ``*/status`` or ``*``; empty
        for all of the group.
    :param names: names of objects; empty for all.
    """

    group: str
    resources: Sequence[str] = ()
    names: Sequence[str] = ()

    def match(self, attributes: Attributes) -> bool:
        """Return whether a request is about one of these resources."""
        if self.group != attributes.group:
            return False
        if not self.resources:
            return True
        if self.names and attributes.name not in self.names:
            return False
        resource, subresource = attributes.resource, attributes.subresource
        patterns = {"*", f"{resource}/*", f"{resource}/{subresource}" if subresource else resource}
        if subresource:
            patterns.add(f"*/{subresource}")
        return not patterns.isdisjoint(self.resources)


@dataclass(frozen=True)
class AuditRule:
    """
    One rule; an empty sequence places no condition on requests.

    :param paths: of requests without a resource; a final ``*`` stands for any rest.
    """

    level: AuditLevel
    users: Sequence[str] = ()
    groups: Sequence[str] = ()
    verbs: Sequence[str] = ()
    resources: Sequence[Resources] = ()
    namespaces: Sequence[str] = ()
    paths: Sequence[str] = ()
    omits_managed_fields: bool = False

    @property
    def covers_reads(self) -> bool:
        """Return whether the rule may record a read."""
        reads = not self.verbs or "*" in self.verbs or not READS.isdisjoint(self.verbs)
        return self.level > AuditLevel.NONE and reads

    def match(self, attributes: Attributes) -> bool:
        """Return whether the rule decides on a request."""
        user = attributes.user
        if self.users and user.name not in self.users:
            return False
        if self.groups and set(self.groups).isdisjoint(user.groups):
            return False
        if self.verbs and "*" not in self.verbs and attributes.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return self._match_resource(attributes)
        return not self.paths or self._match_path(attributes)

    def _match_resource(self, attributes: Attributes) -> bool:
        if not attributes.resource:
            return False
        if self.namespaces and attributes.namespace not in self.namespaces:
            return False
        return not self.resources or any(each.match(attributes) for each in self.resources)

    def _match_path(self, attributes: Attributes) -> bool:
        if attributes.resource:
            return False
        path = attributes.path
        return any(
            path.startswith(each[:-1]) if each.endswith("*") else path == each
            for each in self.paths
        )


@dataclass(frozen=True)
class AuditPolicy:
    """The rules, in order."""

    rules: Sequence[AuditRule] = ()

    @property
    def covers_reads(self) -> bool:
        """Return whether any rule may record a read."""
        return any(rule.covers_reads for rule in self.rules)

    def rule_for(self, attributes: Attributes) -> AuditRule:
        """Return the rule that decides on a request."""
        return next((rule for rule in self.rules if rule.match(attributes)), _NO_RULE)


_NO_RULE = AuditRule(AuditLevel.NONE)


def load(path: str) -> AuditPolicy:
    """
    Read a policy from a file.

    :raises ConfigError: it cannot be read, or is not a policy.
    """
    return parse(read_yaml(path), path)


def parse(document: object, source: str = "audit policy") -> AuditPolicy:
    """
    Read a policy.

    :param source: its name in messages.
    :raises ConfigError: it is not a policy, or has unknown fields.
    """
    reader = Reader(document, source)
    reader.choice("apiVersion", API_VERSIONS, "")
    reader.choice("kind", ("Policy",), "")
    reader.take("metadata", dict, {})
    _check_stages(reader)
    omits = reader.take("omitManagedFields", bool, False)
    entries = reader.take("rules", list)
    if not entries:
        raise reader.error("rules is empty: give at least one rule, such as - level: Metadata")
    rules = [_rule(each, f"{source}: rules[{i}]", omits) for i, each in enumerate(entries)]
    reader.done()
    return AuditPolicy(tuple(rules))


def _rule(document: object, where: str, omits: bool) -> AuditRule:
    reader = Reader(document, where)
    if not reader.has("level"):
        raise reader.error(f"level is missing: give one of {', '.join(_LEVELS)}")
    _check_stages(reader)
    rule = AuditRule(
        level=_LEVELS[reader.choice("level", tuple(_LEVELS), "")],
        users=_texts(reader, "users"),
        groups=_texts(reader, "userGroups"),
        verbs=_texts(reader, "verbs"),
        resources=tuple(
            _resources(each, f"{where}: resources[{i}]")
            for i, each in enumerate(reader.take("resources", list, []))
        ),
        namespaces=_texts(reader, "namespaces"),
        paths=_texts(reader, "nonResourceURLs"),
        omits_managed_fields=reader.take("omitManagedFields", bool, omits),
    )
    reader.done()
    if rule.paths and (rule.resources or rule.namespaces):
        raise reader.error("nonResourceURLs excludes resources and namespaces: make two rules")
    return rule


def _resources(document: object, where: str) -> Resources:
    reader = Reader(document, where)
    group = reader.take("group", str, "")
    resources, names = _texts(reader, "resources"), _texts(reader, "resourceNames")
    reader.done()
    if names and not resources:
        raise reader.error("resourceNames needs resources")
    return Resources(group, resources, names)


def _texts(reader: Reader, key: str) -> tuple[str, ...]:
    values: list[Any] = reader.take(key, list, [])
    if not all(isinstance(each, str) for each in values):
        raise reader.error(f"{key} must be a list of strings")
    return tuple(values)


def _check_stages(reader: Reader) -> None:
    stages = _texts(reader, "omitStages")
    unknown = [each for each in stages if each not in _STAGES]
    if unknown:
        raise reader.error(f"omitStages: {unknown[0]!r} is none of {', '.join(_STAGES)}")
    if _COMPLETE in stages:
        raise reader.error(
            f"omitStages: {_COMPLETE} is the only stage that is recorded; use level None"
        )


DEFAULT_POLICY = parse(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [
            {
                "level": "None",
                "resources": [
                    {"group": "", "resources": ["events"]},
                    {"group": "events.k8s.io"},
                    {"group": "coordination.k8s.io", "resources": ["leases"]},
                    {"group": "authentication.k8s.io"},
                    {"group": "authorization.k8s.io"},
                ],
            },
            {
                "level": "Metadata",
                "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            },
        ],
    }
)
"""Every change, except heartbeats, Events and reviews."""


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

    async def respond(self, context: RequestContext, endpoint: GatedEndpoint) -> None:
        is_change = context.request.method in _VERBS
        if endpoint.is_open or not (is_change or self._records_reads):
            await super().respond(context, endpoint)
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

"""The review kinds: TokenReview, SubjectAccessReview and their relatives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted_exec.api import kinds, strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import APIError, BadRequest, Invalid, ServiceUnavailable
from twisted_exec.apiserver.identity.console_rules import ConsoleRules
from twisted_exec.apiserver.serving.bodies import read_body, work_of
from twisted_exec.apiserver.serving.fairness import FairQueue
from twisted_exec.apiserver.serving.query import write_options
from twisted_exec.apiserver.serving.requests import query_of
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.tokens import IAudienceAuthenticator
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_json

_Answer = Callable[[User, Object, str], Awaitable[Object]]
"""From the requester, the review and its namespace to its ``status``."""


class Reviews:
    """Serves the review kinds."""

    def __init__(
        self,
        gate: Gate,
        rules: ConsoleRules,
        tokens: IAudienceAuthenticator,
        queue: FairQueue,
    ) -> None:
        self._gate, self._rules, self._tokens, self._queue = gate, rules, tokens, queue

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes of all review kinds."""
        self._add(routes, kinds.TOKENREVIEWS, self._token)
        self._add(routes, kinds.SUBJECTACCESSREVIEWS, self._subject_access)
        self._add(routes, kinds.LOCALSUBJECTACCESSREVIEWS, self._subject_access)
        self._add(routes, kinds.SELFSUBJECTACCESSREVIEWS, self._self_access)
        self._add(routes, kinds.SELFSUBJECTRULESREVIEWS, self._self_rules)
        self._add(routes, kinds.SELFSUBJECTREVIEWS, self._self)
        self._add(routes, kinds.SELFSUBJECTREVIEWS_V1BETA1, self._self)

    def _add(self, routes: GatedRoutes, kind: Kind, answer: _Answer) -> None:
        async def handle(context: RequestContext) -> None:
            request, asking = context.request, context.user
            namespace = context.values.get("namespace", "")
            await self._gate.authorize(
                attributes_of(asking, "create", RequestTarget(kind, namespace))
            )
            options = write_options(query_of(context), "CreateOptions")
            body = await read_body(request, kind, options, work_of(context, self._queue))
            review = strategy.shaped(kind, body)
            _check(kind, review, namespace)
            review["status"] = await answer(asking, review, namespace)
            respond_json(request, 201, review)

        scope = "/namespaces/{namespace}" if kind.resource.namespaced else ""
        routes.add(["POST"], f"{root_of(kind)}{scope}/{kind.resource.plural}", handle)

    async def _token(self, asking: User, review: Object, namespace: str) -> Object:
        spec = review.get("spec", {})
        token = spec.get("token", "")
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        raw, audiences = token.encode("utf-8", "surrogatepass"), spec.get("audiences", [])
        try:
            identity = await self._tokens.authenticate_for(raw, audiences)
        except APIError as error:
            if error.may_pass:  # a status would be a refusal, which clients cache
                raise ServiceUnavailable(
                    error.message, retry_after_seconds=error.retry_after_seconds
                ) from None
            return {"authenticated": False, "error": error.message}
        if identity is None:
            return {"authenticated": False, "error": "the token is not valid here"}
        status: Object = {"authenticated": True, "user": user_info(identity.user)}
        # Without audiences in the response the client decides whether ours are acceptable.
        return status | {"audiences": list(identity.audiences)} if identity.audiences else status

    async def _subject_access(self, asking: User, review: Object, namespace: str) -> Object:
        spec = review.get("spec", {})
        user = User(
            spec.get("user", ""),
            tuple(spec.get("groups", [])),
            spec.get("uid", ""),
            {key: tuple(values) for key, values in spec.get("extra", {}).items()},
        )
        return await self._decide(user, spec)

    async def _self_access(self, asking: User, review: Object, namespace: str) -> Object:
        return await self._decide(asking, review.get("spec", {}))

    async def _self(self, asking: User, review: Object, namespace: str) -> Object:
        return {"userInfo": user_info(asking)}

    async def _self_rules(self, asking: User, review: Object, namespace: str) -> Object:
        requested = review.get("spec", {}).get("namespace", "")
        if not requested:
            raise BadRequest("no namespace on request")
        listed, problem = await self._rules.rules_for(asking, requested)
        rules = [rule.to_object() for rule in listed]
        status = {
            "resourceRules": [rule for rule in rules if "nonResourceURLs" not in rule],
            "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
            "incomplete": bool(problem),
        }
        return status | {"evaluationError": problem} if problem else status

    async def _decide(self, user: User, spec: Object) -> Object:
        decision = await self._gate.decide(attributes_of_review(user, spec))
        status: Object = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status


def _check(kind: Kind, review: Object, namespace: str) -> None:
    strategy.check_namespace(review["metadata"], namespace)
    if namespace:
        review["metadata"]["namespace"] = namespace
    if causes := kind.validate(review):
        name = review["metadata"].get("name", "")
        raise Invalid(kind.resource.kind, name, causes, kind.resource.group)


def attributes_of_review(user: User, spec: Mapping[str, Any]) -> Attributes:
    """Convert the ``spec`` of an access review."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if path is not None:
        return Attributes(user, path.get("verb", ""), path=path.get("path", ""))
    resource = resource or {}
    return Attributes(
        user=user,
        verb=resource.get("verb", ""),
        group=resource.get("group", ""),
        version=resource.get("version", ""),
        resource=resource.get("resource", ""),
        subresource=resource.get("subresource", ""),
        namespace=resource.get("namespace", ""),
        name=resource.get("name", ""),
    )


def user_info(user: User) -> Object:
    """Convert a user to the ``user`` of a review."""
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info

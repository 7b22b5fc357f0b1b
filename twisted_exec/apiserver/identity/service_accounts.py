"""
Tokens of ServiceAccounts: TokenRequest API, issuer discovery, detection of deleted credentials.

Programs that cannot send TokenReviews find the keys by OpenID Connect Discovery 1.0.

Sources: ``pkg/registry/core/serviceaccount/storage/token.go`` and
``pkg/serviceaccount/openidmetadata.go`` of Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import urlsplit

from twisted_exec.api import fields, strategy, times
from twisted_exec.api.kinds import SERVICEACCOUNTS, TOKENREQUESTS, Object
from twisted_exec.api.kinds.bootstrap_tokens import SECRET_TYPE
from twisted_exec.api.status import BadRequest, Conflict, Invalid, MethodNotAllowed
from twisted_exec.apiserver.serving.bodies import read_body, work_of
from twisted_exec.apiserver.serving.fairness import FairQueue
from twisted_exec.apiserver.serving.query import write_options
from twisted_exec.apiserver.serving.requests import query_of
from twisted_exec.apiserver.serving.rest import root_of, warning_headers
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.jwt_keys import ALGORITHMS, SigningKey
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.service_accounts import BOUND, TokenIssuer
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond, respond_json
from twisted_exec.streaming.http.routes import not_found
from twisted_exec.streaming.http.site import Request

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
_KEEP = b"public, max-age=3600"


class TokenInvalidation(StoreFollower):
    """Calls back when a credential may have become invalid."""

    changed: Callable[[], None] = staticmethod(lambda: None)

    def followed(self) -> list[Followed]:
        followed = (SERVICEACCOUNTS, *BOUND.values())
        return [Followed(kind.resource, self._happened) for kind in followed]

    def _happened(self, event: Event) -> None:
        is_deleted = event.type == DELETED or "deletionTimestamp" in event.obj["metadata"]
        # Bound objects may change freely; a changed token Secret may hold another token.
        if is_deleted or (event.type != ADDED and event.obj.get("type") == SECRET_TYPE):
            self.changed()


class TokenRequests:
    """
    Answers ``serviceaccounts/token``.

    :param issuer: ``None`` when this server issues no tokens.
    """

    def __init__(
        self, gate: Gate, storage: IStorage, issuer: TokenIssuer | None, queue: FairQueue
    ) -> None:
        self._gate, self._storage, self._issuer, self._queue = gate, storage, issuer, queue

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the route."""
        item = "namespaces/{namespace}/serviceaccounts/{name}/token"
        routes.add(["POST"], f"{root_of(SERVICEACCOUNTS)}/{item}", self._create)

    async def _create(self, context: RequestContext) -> None:
        request, namespace, name = (
            context.request,
            context.values["namespace"],
            context.values["name"],
        )
        target = RequestTarget(SERVICEACCOUNTS, namespace, name, "token")
        await self._gate.authorize(attributes_of(context.user, "create", target))
        options = write_options(query_of(context), "CreateOptions")
        work = work_of(context, self._queue)
        body = await read_body(request, TOKENREQUESTS, options, work)
        token_request = strategy.shaped(TOKENREQUESTS, body)
        answer = await self._answer(token_request, target, options.warnings)
        for warning in warning_headers(options.warnings):
            request.responseHeaders.addRawHeader(b"Warning", warning)
        respond_json(request, 201, answer)

    async def _answer(
        self, token_request: Object, target: RequestTarget, warnings: list[str]
    ) -> Object:
        issuer, key = self._signing()
        _check_names(token_request, target)
        where = (target.namespace, target.name)
        account = await self._storage.get(SERVICEACCOUNTS.resource, *where)
        spec = _completed(token_request, issuer)
        bound = await self._bound(spec.get("boundObjectRef"), target.namespace)
        seconds, longest, now = spec["expirationSeconds"], issuer.longest_seconds, issuer.now()
        if longest and seconds > longest:
            warning = f"requested expiration of {seconds} seconds shortened to {longest} seconds"
            warnings.append(warning)
            spec["expirationSeconds"] = seconds = longest
        token_request["metadata"] |= {
            "name": target.name,
            "namespace": target.namespace,
            "creationTimestamp": times.timestamp(now),
        }
        token_request["status"] = {
            "token": issuer.issue(account, key, spec["audiences"], seconds, bound),
            "expirationTimestamp": times.timestamp(now + seconds),
        }
        return token_request

    def _signing(self) -> tuple[TokenIssuer, SigningKey]:
        key = self._issuer.keys.signing() if self._issuer is not None else None
        if self._issuer is None or key is None:
            raise MethodNotAllowed(
                "this server makes no tokens: it was started without "
                "--service-account-signing-key-file"
            )
        return self._issuer, key

    async def _bound(self, reference: Object | None, namespace: str) -> tuple[str, Object] | None:
        if reference is None:
            return None
        version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        for claim, bound_kind in BOUND.items():
            if (bound_kind.resource.api_version, bound_kind.resource.kind) != (version, kind):
                continue
            name = reference.get("name", "")
            where = namespace if bound_kind.resource.namespaced else ""
            obj = await self._storage.get(bound_kind.resource, where, name)
            if reference.get("uid") not in (None, "", obj["metadata"]["uid"]):
                raise Conflict(
                    f'Operation cannot be fulfilled on {kind} "{name}": the UID in the bound '
                    f"object reference ({reference['uid']}) does not match the UID in record. The "
                    "object might have been deleted and then recreated"
                )
            return claim, obj
        raise BadRequest(f"cannot bind token to object of type {version}, Kind={kind}")


def _check_names(token_request: Object, target: RequestTarget) -> None:
    for key, value in (("name", target.name), ("namespace", target.namespace)):
        name = token_request["metadata"].get(key)
        if name not in (None, "", value):
            must = f"must match the service account {key} if specified"
            cause = fields.invalid(f"metadata.{key}", name, must)
            raise Invalid("TokenRequest", target.name, [cause], TOKENREQUESTS.resource.group)


def _completed(token_request: Object, issuer: TokenIssuer) -> Object:
    token_request.setdefault("spec", {})  # every field has a default
    spec: Object = strategy.completed(TOKENREQUESTS, token_request)["spec"]
    if not spec.get("audiences"):
        spec["audiences"] = list(issuer.audiences)
    if causes := TOKENREQUESTS.validate(token_request):
        raise Invalid("TokenRequest", "", causes, TOKENREQUESTS.resource.group)
    return spec


class IssuerDocuments:
    """
    Serves the issuer's configuration and keys.

    Without ``jwks_uri`` or an https URL as issuer nothing is served: clients could not discover it.
    """

    def __init__(self, gate: Gate, issuer: TokenIssuer, jwks_uri: str = "") -> None:
        self._gate, self._issuer = gate, issuer
        self._jwks_uri = jwks_uri or _beside(issuer.issuer)

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes."""
        routes.add(["GET"], CONFIGURATION, self._configuration)
        routes.add(["GET"], KEYS, self._keys)

    async def _configuration(self, context: RequestContext) -> None:
        await self._allow(context, CONFIGURATION)
        algorithms = {key.algorithms[0] for key in self._issuer.keys.verifying()}
        document = {
            "issuer": self._issuer.issuer,
            "jwks_uri": self._jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted(algorithms, key=ALGORITHMS.index),
        }
        self._respond(context.request, document, "application/json")

    async def _keys(self, context: RequestContext) -> None:
        await self._allow(context, KEYS)
        keys = [key.jwk() for key in self._issuer.keys.verifying()]
        self._respond(context.request, {"keys": keys}, "application/jwk-set+json")

    async def _allow(self, context: RequestContext, path: str) -> None:
        await self._gate.authorize(Attributes(context.user, "get", path=path))
        if not self._jwks_uri:
            raise not_found()

    def _respond(self, request: Request, document: Object, content_type: str) -> None:
        request.setHeader(b"Cache-Control", _KEEP)
        respond(request, 200, json.dumps(document, separators=(",", ":")).encode(), content_type)


def _beside(issuer: str) -> str:
    url = urlsplit(issuer)
    if url.scheme != "https" or not url.netloc or url.query or url.fragment:
        return ""
    return f"https://{url.netloc}{KEYS}"

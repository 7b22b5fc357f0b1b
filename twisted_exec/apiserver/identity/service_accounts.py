"""
Tokens of ServiceAccounts over HTTP: how one is had, and how others know them.

``serviceaccounts/token`` answers with a token to whoever may create that subresource.  For
programs that shall trust such tokens and have no way to ask this server about each, it tells
who issues them and with which keys, as OpenID Connect Discovery 1.0 has it.

Sources: ``pkg/registry/core/serviceaccount/storage/token.go`` and
``pkg/serviceaccount/openidmetadata.go`` of Kubernetes.

Credentials that somebody takes away: accounts and tokens that are deleted.

Whoever has a session by one of them is asked about again at once, not only in the next round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import urlsplit

from twisted.application.service import Service

from twisted_exec.api import fields, strategy, times
from twisted_exec.api.kinds import SERVICEACCOUNTS, TOKENREQUESTS, Object
from twisted_exec.api.kinds.bootstraptokens import SECRET_TYPE
from twisted_exec.api.status import BadRequest, Conflict, Invalid, MethodNotAllowed
from twisted_exec.apiserver.serving.filters import APIRequest, Gate
from twisted_exec.apiserver.serving.query import Query, write_options
from twisted_exec.apiserver.serving.rest import read_body, root_of, warning_headers
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.interfaces import Attributes
from twisted_exec.auth.jose.keys import ALGORITHMS, SigningKey
from twisted_exec.auth.service_accounts import BOUND, TokenIssuer
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, IWatch
from twisted_exec.streaming.http.routes import Routes, not_found
from twisted_exec.streaming.http.site import Request, respond, respond_json


class TokenInvalidation(Service):
    """
    Tells of credentials that may be good no more.

    :param storage: started before this service is.
    :ivar changed: called for each.
    """

    changed: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, storage: IStorage) -> None:
        self._storage = storage
        self._watches: list[IWatch] = []

    def startService(self) -> None:
        """Follow the store."""
        super().startService()
        watch = self._storage.watch
        self._watches = [
            watch(kind.resource, None, self._happened)
            for kind in (SERVICEACCOUNTS, *BOUND.values())
        ]

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        for each in self._watches:
            each.stop()
        self._watches.clear()

    def _happened(self, event: Event) -> None:
        gone = event.type == DELETED or "deletionTimestamp" in event.obj["metadata"]
        # What tokens are bound to may change as it likes, a token itself may be another then.
        if gone or (event.type != ADDED and event.obj.get("type") == SECRET_TYPE):
            self.changed()


CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
_KEEP = b"public, max-age=3600"


class TokenRequests:
    """
    Answers ``serviceaccounts/token``.

    :param issuer: ``None`` when this server knows nothing of tokens of ServiceAccounts.
    """

    def __init__(self, gate: Gate, storage: IStorage, issuer: TokenIssuer | None) -> None:
        self._gate, self._storage, self._issuer = gate, storage, issuer

    def add_to(self, routes: Routes) -> None:
        """Add the route."""
        item = "namespaces/{namespace}/serviceaccounts/{name}/token"
        routes.add(["POST"], f"{root_of(SERVICEACCOUNTS)}/{item}", self._create)

    async def _create(self, request: Request, values: Mapping[str, str]) -> None:
        namespace, name = values["namespace"], values["name"]
        target = Target(SERVICEACCOUNTS, namespace, name, "token")
        await self._gate.authorize_target(cast(APIRequest, request).requester, "create", target)
        options = write_options(Query(request.args), "CreateOptions")
        wanted = strategy.shaped(TOKENREQUESTS, read_body(request, TOKENREQUESTS, options))
        answer = await self._answer(wanted, target, options.warnings)
        for warning in warning_headers(options.warnings):
            request.responseHeaders.addRawHeader(b"Warning", warning)
        respond_json(request, 201, answer)

    async def _answer(self, wanted: Object, target: Target, warnings: list[str]) -> Object:
        issuer, key = self._signing()
        _check_names(wanted, target)
        where = (target.namespace, target.name)
        account = await self._storage.get(SERVICEACCOUNTS.resource, *where)
        spec = _completed(wanted, issuer)
        bound = await self._bound(spec.get("boundObjectRef"), target.namespace)
        seconds, longest, now = spec["expirationSeconds"], issuer.longest_seconds, issuer.now()
        if longest and seconds > longest:
            told = f"requested expiration of {seconds} seconds shortened to {longest} seconds"
            warnings.append(told)
            spec["expirationSeconds"] = seconds = longest
        wanted["metadata"] |= {
            "name": target.name,
            "namespace": target.namespace,
            "creationTimestamp": times.timestamp(now),
        }
        wanted["status"] = {
            "token": issuer.issue(account, key, spec["audiences"], seconds, bound),
            "expirationTimestamp": times.timestamp(now + seconds),
        }
        return wanted

    def _signing(self) -> tuple[TokenIssuer, SigningKey]:
        """:raises MethodNotAllowed: nothing is signed here."""
        key = self._issuer.keys.signing() if self._issuer is not None else None
        if self._issuer is None or key is None:
            raise MethodNotAllowed(
                "this server makes no tokens: it was started without "
                "--service-account-signing-key-file"
            )
        return self._issuer, key

    async def _bound(self, told: Object | None, namespace: str) -> tuple[str, Object] | None:
        """
        What the token is to be bound to, as :meth:`TokenIssuer.issue` has it.

        :raises BadRequest: nothing of this kind.
        :raises NotFound: it is not there.
        :raises Conflict: it is another one of this name.
        """
        if told is None:
            return None
        version, kind = told.get("apiVersion", ""), told.get("kind", "")
        for claim, known in BOUND.items():
            if (known.resource.api_version, known.resource.kind) != (version, kind):
                continue
            name = told.get("name", "")
            where = namespace if known.resource.namespaced else ""
            found = await self._storage.get(known.resource, where, name)
            if told.get("uid") not in (None, "", found["metadata"]["uid"]):
                raise Conflict(
                    f'Operation cannot be fulfilled on {kind} "{name}": the UID in the bound '
                    f"object reference ({told['uid']}) does not match the UID in record. The "
                    "object might have been deleted and then recreated"
                )
            return claim, found
        raise BadRequest(f"cannot bind token to object of type {version}, Kind={kind}")


def _check_names(wanted: Object, target: Target) -> None:
    """
    :raises Invalid: the body names another ServiceAccount than the URL.
    """
    for key, value in (("name", target.name), ("namespace", target.namespace)):
        told = wanted["metadata"].get(key)
        if told not in (None, "", value):
            must = f"must match the service account {key} if specified"
            cause = fields.invalid(f"metadata.{key}", told, must)
            raise Invalid("TokenRequest", target.name, [cause], TOKENREQUESTS.resource.group)


def _completed(wanted: Object, issuer: TokenIssuer) -> Object:
    """
    The ``spec``, with what is meant by what it does not say.

    :raises Invalid: it breaks a rule.
    """
    wanted.setdefault("spec", {})  # all of it has defaults
    spec: Object = strategy.completed(TOKENREQUESTS, wanted)["spec"]
    if not spec.get("audiences"):
        spec["audiences"] = list(issuer.audiences)
    if causes := TOKENREQUESTS.validate(wanted):
        raise Invalid("TokenRequest", "", causes, TOKENREQUESTS.resource.group)
    return spec


class IssuerDocuments:
    """
    Tells who issues tokens, and with which keys.

    Whoever is asked for them needs the role ``system:service-account-issuer-discovery``.
    Nothing is told when the issuer has no https URL: nobody could find it by that.

    :param jwks_uri: where others find the keys; by default, at the issuer.
    """

    def __init__(self, gate: Gate, issuer: TokenIssuer, jwks_uri: str = "") -> None:
        self._gate, self._issuer = gate, issuer
        self._jwks_uri = jwks_uri or _beside(issuer.issuer)

    def add_to(self, routes: Routes) -> None:
        """Add the routes."""
        routes.add(["GET"], CONFIGURATION, self._configuration)
        routes.add(["GET"], KEYS, self._keys)

    async def _configuration(self, request: Request, values: Mapping[str, str]) -> None:
        await self._allow(request, CONFIGURATION)
        algorithms = {key.algorithms[0] for key in self._issuer.keys.verifying()}
        document = {
            "issuer": self._issuer.issuer,
            "jwks_uri": self._jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted(algorithms, key=ALGORITHMS.index),
        }
        self._respond(request, document, "application/json")

    async def _keys(self, request: Request, values: Mapping[str, str]) -> None:
        await self._allow(request, KEYS)
        keys = [key.jwk() for key in self._issuer.keys.verifying()]
        self._respond(request, {"keys": keys}, "application/jwk-set+json")

    async def _allow(self, request: Request, path: str) -> None:
        user = cast(APIRequest, request).requester
        await self._gate.authorize(Attributes(user, "get", path=path))
        if not self._jwks_uri:
            raise not_found()

    def _respond(self, request: Request, document: Object, content_type: str) -> None:
        request.setHeader(b"Cache-Control", _KEEP)
        respond(request, 200, json.dumps(document, separators=(",", ":")).encode(), content_type)


def _beside(issuer: str) -> str:
    """Where the keys of an issuer are that is found by its name; empty when it is not."""
    url = urlsplit(issuer)
    if url.scheme != "https" or not url.netloc or url.query or url.fragment:
        return ""
    return f"https://{url.netloc}{KEYS}"

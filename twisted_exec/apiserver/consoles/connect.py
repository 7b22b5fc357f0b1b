"""
Locate consoles of machines: the poollet of the machine's pool.

The user's identity is forwarded in request headers, which the poollet trusts because of our
forwarding certificate.  We trust a poollet if its certificate names both the dialled address and
the machine's pool: a poollet cannot stand in for another one, whatever addresses a pool reports.

``machines/log``: the output of a machine's console, for ``kubectl logs``.

It is located like the console, and needs ``get`` on ``machines/log``: reading a machine does not
include reading its console.  The log of a machine that is powered off is available too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar
from urllib.parse import quote

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    ADDRESS_TYPES,
    DELETEDCONSOLES,
    Kind,
    Object,
    machine_kind,
)
from twisted_exec.api.kinds.deleted_consoles import log_path as deleted_log_path
from twisted_exec.api.logs import parse
from twisted_exec.api.reasons import reason_headers
from twisted_exec.api.status import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    NotImplementedByBackend,
    ServiceUnavailable,
)
from twisted_exec.apiserver.consoles.recordings import OpenRecordings, wanted_recording
from twisted_exec.apiserver.consoles.refusals import ConsoleRefusals
from twisted_exec.apiserver.interfaces import (
    Applicant,
    IConsolePolicies,
    IOpeningAdmission,
    Opening,
)
from twisted_exec.apiserver.policies.sessions import SessionConditions
from twisted_exec.apiserver.serving.filters import Limits, attributes_of, query_of
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.console_rights import CONSOLE, ConsoleAccess, TakeoverRefused
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import Match
from twisted_exec.streaming.interfaces import UID_HEADER, IStreamLocator, Location, Subject
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import TLSConfigError, VerificationError
from twisted_exec.wire.channel import TERMINAL
from twisted_exec.wire.session_terms import FULL, RECORDED_HEADER, Right, Terms

_LARGEST_PORT = 65535
_USERS = 256
"""Users whose headers, and poollets whose endpoints, all sessions share."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MOST_ADDRESSES = 16
"""Addresses of a pool that are tried: its poollet may report any number, and each costs time."""


@dataclass(frozen=True)
class Backend:
    """
    Connections to poollets.

    :param credentials: the forwarding certificate, and the CA of poollets.
    :param address_types: preferred types of addresses, in order.
    :param seconds: time limit to connect to each address, TLS included, and again for the response.
    :param pools_named: a poollet's certificate must name its pool; third-party poollets may have
        certificates for an address only.
    """

    credentials: ClientCredentials
    address_types: Sequence[str] = ADDRESS_TYPES
    seconds: float = 5.0
    pools_named: bool = True


@implementer(IStreamLocator)
class MachineLocator:
    """
    Locates the poollet for ``.../machines/NAME/exec`` of one dialect.

    :param policies: apply to consoles, not to logs.
    :param admissions: called in order for each authorized stream.
    :param strict_verbs: ``create`` on ``machines/exec`` includes no right; see
        :mod:`twisted_exec.auth.console_rights`.
    :param now: seconds since the epoch.
    :param refusals: record refusals by policies, and denied take-overs, as Events.
    :param limits: locating counts as a short request.
    :param recordings: of the machines; without it there are none.
    :cvar verb: the required verb.  Opening a console is a create whatever the HTTP method
        (k8s#78741).
    :cvar needs_power: the machine must be powered on.
    :cvar resumes: the poollet may resume sessions.
    :cvar is_recorded: ConsolePolicies may require a recording.
    """

    subresource: ClassVar[str] = "exec"
    verb: ClassVar[str] = "create"
    needs_power: ClassVar[bool] = True
    resumes: ClassVar[bool] = True
    is_recorded: ClassVar[bool] = True

    def __init__(
        self,
        dialect: Dialect,
        gate: Gate,
        storage: IStorage,
        backend: Backend,
        reactor: object,
        policies: IConsolePolicies,
        admissions: Sequence[IOpeningAdmission] = (),
        limits: Limits | None = None,
        strict_verbs: bool = False,
        now: Callable[[], float] = time.time,
        refusals: ConsoleRefusals | None = None,
        recordings: OpenRecordings | None = None,
    ) -> None:
        self._recordings = recordings
        self._gate, self._storage, self._policies = gate, storage, policies
        self._refusals = refusals
        self._strict_verbs, self._now = strict_verbs, now
        self._dialect, self._backend = dialect, backend
        self._reactor = reactor
        self._kind, self._admissions = machine_kind(dialect), admissions
        self._limits = limits or Limits()
        self._shared_endpoint = lru_cache(maxsize=_USERS)(self._new_endpoint)

    @property
    def workload(self) -> str:
        """The resource of the machines, in the form ``PLURAL.GROUP``."""
        return self._dialect.workload.qualified

    def locate(self, context: RequestContext) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`; the target is a machine of the dialect."""
        return Deferred.fromCoroutine(self._locate(context))

    async def _locate(self, context: RequestContext) -> Location:
        with self._limits.short(context.user):
            try:
                return await self._found(context, context.target)
            except TakeoverRefused as refusal:
                if self._refusals is not None:
                    await self._refusals.takeover(self._kind, context.subject, refusal.message)
                raise

    async def _found(self, context: RequestContext, target: Target) -> Location:
        context.learn_reason()
        access, right = await self._authorize(context, target)
        headers = forwarded_headers(context.user)
        self._check_query(context)
        await self._admit(context, target)
        machine = await self._machine(target, is_open=context.continues_session)
        pool = self._dialect.pool_name(machine)
        context.learn(uid=machine["metadata"]["uid"], pool=pool)
        path = self._dialect.poollet_path(target.namespace, target.name, self.subresource)
        location = self.poollet(await self.pool(target.name, pool), context, path)
        # Last, because a session may use up an approval.
        terms = FULL if access is None else await self._terms(context, access, right, machine)
        uid = (UID_HEADER, quote(context.subject.uid, safe="").encode("ascii"))
        headers = (*headers, uid, *reason_headers(context.subject.reason))
        if context.recorded:
            recorded = (RECORDED_HEADER.encode("ascii"), context.recorded.encode("ascii"))
            location = replace(location, answer_headers=(recorded,))
        if self.resumes:
            location = replace(location, resumes=True, anew=self._anew(target, location))
        return replace(location, headers=headers, terms=terms)

    def _anew(self, target: Target, location: Location) -> Callable[[], Deferred[Location]]:
        """Return a function that locates the same machine again."""
        subject, path = location.subject, location.path.decode("ascii")

        async def anew() -> Location:
            machine = await self._machine(target, is_open=True)
            if machine["metadata"]["uid"] != subject.uid:
                resource = target.kind.resource
                raise NotFound(resource.plural, target.name, resource.group)
            pool = await self.pool(target.name, self._dialect.pool_name(machine))
            present = self._at(pool, subject, path)
            return replace(location, endpoints=present.endpoints, host=present.host)

        return lambda: Deferred.fromCoroutine(anew())

    async def _authorize(
        self, context: RequestContext, target: Target
    ) -> tuple[ConsoleAccess | None, Right]:
        """Check the user's permission; return the access if it is to a console, and the right."""
        if target.subresource == CONSOLE:
            context.options = replace(context.options, read_only=True, force=False)
        permission = attributes_of(context.user, self.verb, target)
        opening = replace(permission, subresource=self.subresource)
        access = ConsoleAccess.of(opening, context.options, strict=self._strict_verbs)
        return access, await self._gate.authorize_console(context, access)

    async def _terms(
        self, context: RequestContext, access: ConsoleAccess, right: Right, machine: Object
    ) -> Terms:
        """Return the terms of a session under the ConsolePolicies of its machine."""
        subject = context.subject
        applicant = Applicant(
            context.user,
            subject.session,
            self._now(),
            reason=subject.reason,
            caller=context.caller.name if context.caller is not None else "",
            resumes=context.resumption.session if context.resumption is not None else "",
        )
        recording = "" if self.is_recorded else None
        conditions = SessionConditions(self._policies, applicant, machine, recording)
        access = access.under(conditions)
        if conditions.is_strict():
            right = min(right, await self._gate.authorize_console(context, access))
        else:
            self._gate.allow_console(context, access)
        try:
            terms = access.terms(await self._policies.open(applicant, machine, right))
        except Forbidden as refusal:
            if self._refusals is not None:
                self._refusals.by_policy(self._kind, machine, subject, refusal.message)
            raise
        if recording is None:
            return terms
        recording = await self._recorded(context, machine)
        self._gate.allow_console(context, access.under(replace(conditions, recording=recording)))
        return replace(terms, recording=recording)

    async def _recorded(self, context: RequestContext, machine: Object) -> str:
        """Return the recording that a session requires, for its terms; empty if it requires none."""
        demand = await wanted_recording(
            context, self._gate, machine, self._policies.demand(machine)
        )
        if demand is None:
            return ""
        if self._recordings is None:
            namespace = machine["metadata"]["namespace"]
            raise NotImplementedByBackend(f"{demand.rule(namespace)}, and this server makes none")
        return await self._recordings.term(context, self._dialect, machine, demand)

    def _check_query(self, context: RequestContext) -> None:
        """:raises APIError: the query is invalid."""
        if query_of(context).texts("dryRun"):
            raise BadRequest("dryRun is not supported for exec")

    async def _admit(self, context: RequestContext, target: Target) -> None:
        """Run admission; as in Kubernetes before the object's existence is checked."""
        if target.subresource not in self._kind.connects:
            return  # a text, not a stream
        opening = Opening(
            context.user,
            target.kind,
            target.namespace,
            target.name,
            target.subresource,
            connect_options(target.kind, target.subresource, query_of(context)),
        )
        for admission in self._admissions:
            await admission.admit_opening(opening)

    async def _machine(self, target: Target, *, is_open: bool = False) -> Object:
        """
        Return the machine.

        :param is_open: for a session that is open already, which may wait until the machine is on.
        """
        machine = await self._storage.get(self._dialect.workload, target.namespace, target.name)
        named = f'{self._dialect.noun} "{target.name}"'
        if "deletionTimestamp" in machine["metadata"]:
            raise Conflict(f"{named} is being deleted")
        if not self._dialect.pool_name(machine):
            raise BadRequest(
                f"{self._dialect.noun} {target.name} has no {self._dialect.pool_noun} assigned"
            )
        if self.needs_power and not is_open and machine["spec"].get("power") == "Off":
            raise Conflict(f"{named} is powered off: set spec.power to On")
        return machine

    async def pool(self, machine: str, pool: str) -> Object:
        """
        Return a pool.

        :param machine: the name of a machine that was assigned to it, for messages.
        :raises NotFound: there is no such pool.
        """
        try:
            return await self._storage.get(self._dialect.pool, "", pool)
        except NotFound as error:
            raise NotFound(
                self._dialect.pool.plural,
                pool,
                self._dialect.group,
                f'{error.message}: it was assigned to {self._dialect.noun} "{machine}"',
            ) from None

    def poollet(self, pool: Object, context: RequestContext, path: str) -> Location:
        """Return the location of a path on the poollet of a pool."""
        return self._at(pool, context.subject, path)

    def _at(self, pool: Object, subject: Subject, path: str) -> Location:
        name = pool["metadata"]["name"]
        status = pool.get("status", {})
        port = status.get("daemonEndpoints", {}).get(self._dialect.endpoint_field, {}).get("port")
        if not port or not 0 < port <= _LARGEST_PORT:
            port = self._dialect.default_port
        addresses = usable_addresses(pool, self._backend.address_types)
        endpoints = {
            f"{host}:{port}": endpoint
            for host in addresses
            if (endpoint := self._endpoint(host, port, name)) is not None
        }
        if not endpoints:
            raise no_address(pool, self._backend.address_types, self._dialect.pool_noun)
        first = next(iter(endpoints))
        return Location(
            subject=subject,
            endpoints=[(f'pool "{name}" at {at}', to) for at, to in endpoints.items()],
            path=path.encode("ascii"),
            host=first.encode("ascii" if first.isascii() else "idna"),
            streams=TERMINAL,
        )

    def _endpoint(self, host: str, port: int, pool: str) -> IStreamClientEndpoint | None:
        try:
            return self._shared_endpoint(host, port, pool)
        except TLSConfigError:
            return None  # no certificate could contain this name

    def _new_endpoint(self, host: str, port: int, pool: str) -> IStreamClientEndpoint:
        """:raises TLSConfigError: the host is malformed."""
        check = None
        if self._backend.pools_named:
            check = _names(self._dialect.pool_identity(pool))
        tls = self._backend.credentials.to(host, check=check)
        return client_endpoint(
            self._reactor, host, port, tls, timeout_seconds=self._backend.seconds
        )


def connect_options(kind: Kind, subresource: str, query: Query) -> Object:
    """The query of a stream as an object, such as ``MachineExecOptions``."""
    connect = kind.connects[subresource]
    options: Object = {"kind": connect.options, "apiVersion": kind.resource.api_version}
    for key, schema in connect.schema["properties"].items():
        if query.has(key):
            options[key] = query.flag(key) if schema.get("type") == "boolean" else query.text(key)
    return options


def usable_addresses(pool: Object, types: Sequence[str]) -> list[str]:
    """A pool's addresses of the preferred types, best first, each once, at most 16."""
    reported = pool.get("status", {}).get("addresses", [])
    matching = [
        item["address"]
        for preferred in types
        for item in reported
        if item["type"] == preferred and item["address"]
    ]
    return list(dict.fromkeys(matching))[:_MOST_ADDRESSES]


def no_address(pool: Object, types: Sequence[str], noun: str) -> ServiceUnavailable:
    """The error for a pool, or a node, without a usable address."""
    reported = pool.get("status", {}).get("addresses", [])
    first = reported[:_MOST_ADDRESSES]
    listed = ", ".join(f"{item['type']}={item['address']}" for item in first) or "none"
    if len(reported) > len(first):
        listed += f" and {len(reported) - len(first)} more"
    return ServiceUnavailable(
        f'{noun} "{pool["metadata"]["name"]}" has no usable address of the preferred types '
        f"{', '.join(types)}; known addresses: {listed}"
    )


def forwarded_headers(user: User) -> Sequence[tuple[bytes, bytes]]:
    """
    Encode a user's identity in headers for the next hop.

    :return: shared by all sessions of the user.
    :raises Forbidden: it does not fit into headers.
    """
    extra = tuple((key, tuple(values)) for key, values in user.extra.items())
    return _forwarded(user.name, user.groups, user.uid, extra)


@lru_cache(maxsize=_USERS)
def _forwarded(
    name: str, groups: tuple[str, ...], uid: str, extra: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[tuple[bytes, bytes], ...]:
    headers = [(b"X-Remote-User", _header_value(name))]
    headers += [(b"X-Remote-Group", _header_value(group)) for group in groups]
    if uid:
        headers.append((b"X-Remote-Uid", _header_value(uid)))
    for key, values in extra:
        header = b"X-Remote-Extra-" + quote(key.lower(), safe="").encode("ascii")
        headers += [(header, _header_value(value)) for value in values]
    return tuple(headers)


def _header_value(text: str) -> bytes:
    if text != text.strip() or _CONTROL.search(text):
        raise Forbidden("your user, a group or an extra has characters that cannot be forwarded")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise Forbidden("your user, a group or an extra is not text") from None


def _names(identity: str) -> Callable[[x509.Certificate], None]:
    def check(certificate: x509.Certificate) -> None:
        names = [
            attribute.value
            for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        if names != [identity]:
            raise VerificationError(
                f"the certificate is not that of the pool: its common name is {names}, "
                f"not {identity!r}"
            )

    return check


LOG = "log"


class LogLocator(MachineLocator):
    """Locates the poollet for ``.../machines/NAME/log``, or for ``/log`` of a machine's Pod."""

    subresource: ClassVar[str] = LOG
    verb: ClassVar[str] = "get"
    needs_power: ClassVar[bool] = False
    resumes: ClassVar[bool] = False

    async def _authorize(self, context: RequestContext, target: Target) -> tuple[None, Right]:
        permission = attributes_of(context.user, self.verb, target)
        await self._gate.authorize_session(context, permission)
        return None, Right.OBSERVE

    def _check_query(self, context: RequestContext) -> None:
        parse(context.request.args, context.target.name)

    def poollet(self, pool: Object, context: RequestContext, path: str) -> Location:
        """See :meth:`MachineLocator.poollet`."""
        # ironcore's own poollet serves consoles only: Go's plain 404 for every other path.
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{pool["metadata"]["name"]}" does not serve logs: '
            "it is not an exec-poollet"
        )
        options = parse(context.request.args, context.target.name)
        return replace(super().poollet(pool, context, path), unknown_path=unknown, log=options)


@implementer(IStreamLocator)
class DeletedLogLocator:
    """
    Locates the poollet for ``.../deletedconsoles/NAME/log``: what a deleted machine printed.

    :param logs: locate the logs of machines, one for each dialect.
    """

    def __init__(
        self, gate: Gate, storage: IStorage, logs: Iterable[LogLocator], limits: Limits
    ) -> None:
        self._gate, self._storage, self._limits = gate, storage, limits
        self._logs = {each.workload: each for each in logs}

    def locate(self, context: RequestContext) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`; the target is a DeletedConsole."""
        return Deferred.fromCoroutine(self._locate(context))

    async def _locate(self, context: RequestContext) -> Location:
        with self._limits.short(context.user):
            return await self._found(context, context.target)

    async def _found(self, context: RequestContext, target: Target) -> Location:
        await self._gate.authorize_session(context, attributes_of(context.user, "get", target))
        headers = forwarded_headers(context.user)
        parse(context.request.args, target.name)
        deleted = await self._storage.get(target.kind.resource, target.namespace, target.name)
        spec = deleted["spec"]
        logs = self._logs.get(spec["machineResource"])
        if logs is None:
            raise NotImplementedByBackend(
                f"this server does not serve {spec['machineResource']} any more"
            )
        context.learn(uid=spec["machineUID"], pool=spec["pool"])
        pool = await logs.pool(spec["machine"], spec["pool"])
        path = deleted_log_path(target.namespace, target.name)
        return replace(logs.poollet(pool, context, path), headers=headers)


def console_facts(dialects: Iterable[Dialect]) -> Callable[[Target], dict[str, str]]:
    """Make a function from a machine of these dialects to the facts of its sessions."""
    by_kind = {machine_kind(dialect).resource: dialect for dialect in dialects}

    def facts(target: Target) -> dict[str, str]:
        dialect = by_kind[target.kind.resource]
        return {
            "namespace": target.namespace,
            "machine": target.name,
            "resource": dialect.workload.qualified,
            "noun": dialect.noun,
            "subresource": target.subresource,
        }

    return facts


def add_consoles(routes: GatedRoutes, dialect: Dialect, proxy: Proxy) -> None:
    """
    Add the console routes of one dialect's machines.

    ``GET`` and ``POST`` open a session; ``DELETE`` ends it and ``PATCH`` changes its terms, for the
    user who opened it.  ``console`` is the observers' path.
    """
    kind = machine_kind(dialect)
    for subresource, connect in kind.connects.items():
        path = f"{item_path(kind)}/{subresource}"
        target = partial(target_of, kind, subresource)
        facts = console_facts([dialect])
        routes.add_session(connect.methods, path, proxy.handle, target=target, session=facts)
        routes.add(["DELETE"], path, proxy.end, is_open=True)
        routes.add(["PATCH"], path, proxy.limit, is_open=True)


def add_logs(routes: GatedRoutes, dialect: Dialect, relay: Relay) -> None:
    """Add the logs of one dialect's machines; the relay has a :class:`LogLocator`."""
    kind = machine_kind(dialect)
    target, facts = partial(target_of, kind, LOG), console_facts([dialect])
    path = f"{item_path(kind)}/{LOG}"
    routes.add_session(["GET"], path, relay.handle, target=target, session=facts)


def add_deleted_logs(routes: GatedRoutes, relay: Relay) -> None:
    """Add the logs of deleted machines; the relay has a :class:`DeletedLogLocator`."""
    kind = DELETEDCONSOLES
    facts = {"resource": kind.resource.qualified, "noun": kind.singular, "subresource": LOG}

    def session(target: Target) -> dict[str, str]:
        return {"namespace": target.namespace, "machine": target.name, **facts}

    path, target = f"{item_path(kind)}/{LOG}", partial(target_of, kind, LOG)
    routes.add_session(["GET"], path, relay.handle, target=target, session=session)


def item_path(kind: Kind) -> str:
    """Return the pattern of the path of an object."""
    return f"{root_of(kind)}/namespaces/{{namespace}}/{kind.resource.plural}/{{name}}"


def target_of(kind: Kind, subresource: str, match: Match[Any]) -> Target:
    """Return the object of a request, with the subresource of its route."""
    return Target(kind, match.values["namespace"], match.values["name"], subresource)

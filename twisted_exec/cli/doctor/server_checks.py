"""Checks of the way to the API server."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.protocol import Factory, Protocol

from twisted_exec.api.conditions import condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import SELFSUBJECTREVIEWS, Object
from twisted_exec.api.obstacles import obstacles_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden, Unauthorized, message_of
from twisted_exec.cli.advice import KUBECTL
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.doctor.findings import Findings, Unusable
from twisted_exec.cli.explanations import not_accepted, remedy_for
from twisted_exec.cli.options import config_of
from twisted_exec.cli.suggestion import has_namespace
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.kubeconfig.credentials import settled
from twisted_exec.kube.kubeconfig.expiry import expiry_of
from twisted_exec.kube.machine_requests import DOCTOR_AGENT
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.streaming.http.upgrade_client import connection_obstacle, connection_problem
from twisted_exec.tls import pem
from twisted_exec.tls.errors import HandshakeError, OutsideValidity, TLSError

SOON_DAYS = 7.0
"""A certificate with less time left gets a warning, unless it is short-lived."""
_SHORT_LIVED_DAYS = 30.0
_DAY_SECONDS = 86400.0

CLOCK_WARNING_SECONDS, CLOCK_ERROR_SECONDS = 30.0, 300.0
"""Differences between the clocks of this host and of the server."""

_APISERVICES = Resource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False
)

_READY = Request("GET", "/readyz?verbose=1", repeatable=True)
_HEALTH_CHECK = re.compile(r"^\[[+-]\](\S+) (failed|ok, but (.*))", re.MULTILINE)
"""A health check of a server that does not pass, or passes with a limit (:class:`.ProbeResult`)."""

_ANSWER_BYTES = 1 << 20
_MOST_NAMES = 4

_LIMITED = (
    "do as the message says. Until then status and Events of machines are out of date, such as whether their output is on "
    "the disk of a runtime"
)
_NOT_READY = "see the log of the API server, which has the reasons"
_NO_NAMESPACE = f"use -n NAMESPACE, or correct the namespace of the kubeconfig's context; {KUBECTL.list_namespaces}"
_NETWORK = "check the address in the kubeconfig, and the network and firewalls on the way"
_REMEDIES: tuple[tuple[type[BaseException], str], ...] = (
    (KubeConfigError, "correct the file that the message names"),
    (OutsideValidity, "renew the server's certificate, or set this host's clock, as by NTP"),
    (
        HandshakeError,
        "check that an HTTPS server listens there, and the client certificate of the kubeconfig",
    ),
)


@dataclass(frozen=True)
class ExaminedServer:
    """
    The API server of an examination.

    :param config: with the credential of the plugin, if there is one.
    :param now: seconds since the epoch, by this host's clock.
    """

    config: ClientConfig
    reactor: Any
    timeout_seconds: float
    report: Findings
    now: Callable[[], float] = time.time

    def client(self) -> CommandClient:
        """Return a client of the server; the caller closes it."""
        return CommandClient(
            self.config, self.reactor, timeout_seconds=self.timeout_seconds, agent=DOCTOR_AGENT
        )


async def reach_server(
    options: argparse.Namespace,
    reactor: Any,
    report: Findings,
    timeout_seconds: float,
    now: Callable[[], float] = time.time,
) -> ExaminedServer:
    """
    Check everything between the command line and an answer of the API server.

    :raises Unusable: no request can succeed.
    """
    config = await _configuration(options, reactor, report)
    server = ExaminedServer(config, reactor, timeout_seconds, report, now)
    _check_credentials(server)
    await _connect(server)
    await _compare_clocks(server)
    return server


async def _configuration(
    options: argparse.Namespace, reactor: Any, report: Findings
) -> ClientConfig:
    try:
        config = config_of(options)
    except KubeConfigError as problem:
        remedy = problem.remedy or (
            "correct the kubeconfig, or choose another with KUBECONFIG, --kubeconfig or --context"
        )
        raise report.fatal("kubeconfig", problem.reason, remedy) from None
    source = config.source or "the command line"
    report.ok("kubeconfig", f"{source}: {config.server}, namespace {config.namespace}")
    if config.insecure_skip_tls_verify:
        report.warning(
            "kubeconfig",
            "the server's certificate is not verified",
            "remove insecure-skip-tls-verify, and set certificate-authority",
        )
    try:
        return await settled(config, reactor, interactive=True)
    except KubeConfigError as problem:
        remedy = "choose another user with --user, or another context with --context"
        raise report.fatal("credentials", str(problem), remedy) from None


def _check_credentials(server: ExaminedServer) -> None:
    config, report = server.config, server.report
    try:
        certificate = config.certificate.read()
    except KubeConfigError as problem:
        remedy = "check client-certificate in the kubeconfig"
        raise report.fatal("credentials", str(problem), remedy) from None
    if certificate:
        try:
            leaf = pem.certificates(certificate, "the client certificate")[0]
        except TLSError as problem:
            remedy = "get a new certificate, such as from twisted-exec pki user"
            raise report.fatal("credentials", str(problem), remedy) from None
        remedy = "get a new certificate, such as from twisted-exec pki renew"
        _check_validity(server, "credentials", f"certificate of {_subject(leaf)}", leaf, remedy)
        return
    if not config.has_credentials:
        report.warning(
            "credentials",
            "the kubeconfig has none: requests are anonymous",
            "set a client certificate, a token or a credential plugin for the kubeconfig's user",
        )
        return
    what = config.kind_of_credentials
    end = expiry_of(config)
    if end is None:
        report.ok("credentials", what)
    elif end < server.now():
        report.error(
            "credentials", f"{what} expired on {_date(end)}", "get a new token: log in again"
        )
    else:
        report.ok("credentials", f"{what}, valid until {_date(end)}")


def _check_validity(
    server: ExaminedServer, check: str, what: str, certificate: x509.Certificate, remedy: str
) -> None:
    begin = certificate.not_valid_before_utc.timestamp()
    end, now = certificate.not_valid_after_utc.timestamp(), server.now()
    report = server.report
    if now < begin:
        report.error(
            check, f"{what} is valid from {_date(begin)} only", "set this host's clock, as by NTP"
        )
    elif end < now:
        report.error(check, f"{what} expired on {_date(end)}", remedy)
    elif (end - now) / _DAY_SECONDS < SOON_DAYS and (
        end - begin
    ) / _DAY_SECONDS > _SHORT_LIVED_DAYS:
        report.warning(check, f"{what} expires on {_date(end)}", remedy)
    else:
        report.ok(check, f"{what}, valid until {_date(end)}")


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _subject(certificate: x509.Certificate) -> str:
    names = [str(each.value) for each in _attributes(certificate, NameOID.COMMON_NAME)]
    groups = [str(each.value) for each in _attributes(certificate, NameOID.ORGANIZATION_NAME)]
    named = ", ".join(names) or "nobody"
    return f"{named} (groups {', '.join(groups)})" if groups else named


def _attributes(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> Iterable[Any]:
    return certificate.subject.get_attributes_for_oid(oid)


async def _connect(server: ExaminedServer) -> None:
    config, report = server.config, server.report
    certificates: list[x509.Certificate] = []
    way = endpoint(
        config, server.reactor, timeout_seconds=server.timeout_seconds, check=certificates.append
    )
    try:
        connection: Any = await way.connect(Factory.forProtocol(Protocol))
    except Exception as problem:  # TCP, TLS, DNS and proxies raise many unrelated types
        message = f"cannot reach {config.server}: {connection_problem(problem)}"
        raise report.fatal("server", message, _remedy(problem, config)) from None
    connection.transport.abortConnection()
    if not certificates:
        report.ok("server", f"{config.server} accepts connections; the kubeconfig uses no TLS")
        return
    remedy = "renew the server's certificate, as with twisted-exec pki renew"
    names = list(dict.fromkeys(pem.names_of(certificates[0])))
    text = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    what = f"{config.server} (certificate for {text})"
    _check_validity(server, "server", what, certificates[0], remedy)


def _remedy(problem: Exception, config: ClientConfig) -> str:
    obstacle = connection_obstacle(problem)
    remedies = (remedy for kind, remedy in _REMEDIES if isinstance(problem, kind))
    return remedy_for([obstacle] if obstacle else (), config) or next(remedies, _NETWORK)


async def _compare_clocks(server: ExaminedServer) -> None:
    transport = HTTPTransport(server.config, server.reactor, agent=DOCTOR_AGENT)
    before = server.now()
    try:
        _, headers, _ = await transport.collect(
            Request("GET", "/version", repeatable=True),
            timeout_seconds=server.timeout_seconds,
            limit_bytes=_ANSWER_BYTES,
        )
    except (APIError, KubeConfigError) as problem:
        message = message_of(problem)
        obstacles = obstacles_of(problem) if isinstance(problem, APIError) else ()
        remedy = (
            remedy_for(obstacles, server.config)
            or "check that the address is that of an API server, and its log"
        )
        raise server.report.fatal("server", message, remedy) from None
    finally:
        await transport.close()
    middle = (before + server.now()) / 2
    try:
        ahead = middle - parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        server.report.skipped("clock", "the server's answers have no date")
        return
    _judge_clock(server.report, ahead)


def _judge_clock(report: Findings, ahead: float) -> None:
    if abs(ahead) <= CLOCK_WARNING_SECONDS:
        report.ok("clock", "as the server's clock")
        return
    way = "ahead of" if ahead > 0 else "behind"
    message = f"this host's clock is {abs(ahead):.0f} s {way} the server's"
    remedy = "synchronize both hosts by NTP: certificates and tokens depend on the time"
    add = report.error if abs(ahead) > CLOCK_ERROR_SECONDS else report.warning
    add("clock", message, remedy)


async def check_user(server: ExaminedServer, client: CommandClient) -> str:
    """
    Check whether the server accepts our credentials.

    :return: the user's name, if the server says it.
    :raises Unusable: the server does not accept them, or fails.
    """
    report = server.report
    try:
        review = await client.create(SELFSUBJECTREVIEWS.resource, {})
    except (APIError, KubeConfigError) as problem:
        code = problem.code if isinstance(problem, APIError) else 0
        if code in (403, 404):  # an older server, or one that forbids it to anonymous users
            report.skipped(
                "user", f"the server does not say which user this is: {message_of(problem)}"
            )
            return ""
        remedy, why = "get new credentials, or check --context and --user", message_of(problem)
        if code == Unauthorized.code:
            why = f"{not_accepted(server.config)}: {why}"
        raise report.fatal("user", why, remedy) from None
    user = (review.get("status") or {}).get("userInfo") or {}
    groups = ", ".join(user.get("groups") or ()) or "no groups"
    name = str(user.get("username", ""))
    report.ok("user", f"{name} ({groups})")
    return name


async def check_readiness(server: ExaminedServer) -> None:
    """Report what the server's own health checks say; nothing if it does not tell the user."""
    transport = HTTPTransport(server.config, server.reactor, agent=DOCTOR_AGENT)
    try:
        code, _, body = await transport.collect(
            _READY, timeout_seconds=server.timeout_seconds, limit_bytes=_ANSWER_BYTES
        )
    except (APIError, KubeConfigError):
        return  # such as a health check that takes too long; requests for objects tell more
    finally:
        await transport.close()
    if code not in (200, 503):
        return
    failed = []
    for name, result, limit in _HEALTH_CHECK.findall(body.decode("utf-8", "replace")):
        if result == "failed":
            failed.append(name)
        else:
            server.report.warning(name, limit, _LIMITED)
    if failed:
        message = (
            f"{server.config.server} is not ready: its health checks fail: {', '.join(failed)}"
        )
        server.report.error("server", message, _NOT_READY)


async def check_namespace(server: ExaminedServer, client: CommandClient) -> None:
    """Report a namespace that does not exist, as far as the server tells the user."""
    namespace = server.config.namespace
    if not await has_namespace(client, namespace):
        server.report.error("namespace", f'namespace "{namespace}" does not exist', _NO_NAMESPACE)


async def undiscovered(
    server: ExaminedServer, client: CommandClient, problem: APIError, among: Iterable[Dialect]
) -> Unusable:
    """Return the error for machines that cannot be discovered."""
    fatal = server.report.fatal
    if problem.code in (Unauthorized.code, Forbidden.code):
        remedy = "check the rights of this user: discovery is for all authenticated users"
        return fatal("api", problem.message, remedy)
    services = []
    for name in dict.fromkeys(f"{each.version}.{each.group}" for each in among):
        try:
            service = await client.get(_APISERVICES, name)
        except APIError as refused:
            if refused.code == Forbidden.code:
                remedy = (
                    "ask an administrator for kubectl get apiservices, and to start the API server of "
                    "those that are not available"
                )
                return fatal("api", problem.message, remedy)
            continue  # another kind of API server, or a dialect that it does not have
        if (service.get("spec") or {}).get("service"):
            services.append((name, service))
    if not services:
        return fatal("api", problem.message, "check the API server's log")
    # Right after a loss all are still available.
    name, service = next((each for each in services if _unavailable(each[1])), services[0])
    why, backend = _unavailable(service), service["spec"]["service"]
    message = f"APIService {name} is not available: {why}" if why else problem.message
    remedy = (
        f"see that an API server runs behind the Service {backend.get('namespace')}/"
        f"{backend.get('name')} (its log), and kubectl describe apiservices {name}"
    )
    return fatal("api", message, remedy)


def _unavailable(service: Object) -> str:
    condition = condition_of(service, "Available")
    if condition.get("status") == "True":
        return ""
    return why_of(condition) or "kube-apiserver has not looked yet"


def why_of(obj: Object) -> str:
    """Return reason and message of a condition or an Event."""
    return ": ".join(filter(None, (obj.get("reason"), obj.get("message"))))

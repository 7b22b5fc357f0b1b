"""Settings of the parts of a standalone program."""

from __future__ import annotations

from twisted_exec.api.users import FORWARDING_USER
from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY
from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.identity.service_accounts import KEYS
from twisted_exec.apiserver.settings import Settings as APIServerSettings
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.poollet.settings import Settings as PoolletSettings
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.recordings.settings import RecordingSettings
from twisted_exec.runtimes.settings import Settings as RuntimeSettings
from twisted_exec.standalone import PROGRAM
from twisted_exec.standalone.certificates import POOL, Certificates
from twisted_exec.standalone.machines import CLASSES, SHELLS
from twisted_exec.standalone.settings import Settings
from twisted_exec.tls.pki.directory import CLIENT, PKI, SERVING

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Issuer of ServiceAccount tokens: independent of the port, as in most clusters."""

BEHIND_SECONDS = 0.3
"""
Limit for the last messages of poollet and runtime, which stop behind the API server: it has told all sessions, and
waited for those that do not read.
"""


def runtime_settings(
    settings: Settings, directory: str, sockets: str, certificates: Certificates
) -> RuntimeSettings:
    """Return the settings of the runtime."""
    return RuntimeSettings(
        classes=[*parse(CLASSES if settings.demo else SHELLS), *settings.classes],
        state_directory=directory,
        iri_target=f"unix://{sockets}/iri.sock",
        sessions=settings.sessions,
        keep_machines=settings.keep_machines,
        last_line_seconds=settings.last_line_seconds,
        drain_seconds=min(BEHIND_SECONDS, settings.drain_seconds),
        recording=RecordingSettings(
            certificates.recorder.certificate,
            certificates.recorder.key,
            make_store=settings.recording_store,
        ),
    )


def apiserver_settings(
    settings: Settings, certificates: Certificates, client_cas: str
) -> APIServerSettings:
    """Return the settings of the API server."""
    pki = certificates.pki
    return APIServerSettings(
        listen=f"tcp:{settings.port}:interface=127.0.0.1",
        certificate=certificates.apiserver.certificate,
        key=certificates.apiserver.key,
        client_ca=client_cas,
        poollet_certificate=certificates.forwarding.certificate,
        poollet_key=certificates.forwarding.key,
        poollet_ca=pki.serving_ca,
        drain_seconds=settings.drain_seconds,
        program=PROGRAM,
        identities=_identities(settings, pki),
        signing=CAPair(pki.pair(SERVING).certificate, pki.pair(SERVING).key),
        client_signing=CAPair(pki.pair(CLIENT).certificate, pki.pair(CLIENT).key),
        pods_view=settings.pods_view,
        dialects=(settings.dialect,),
        allowed_origins=settings.allowed_origins,
        sessions=settings.sessions,
        audit_policy=DEFAULT_POLICY,
        strict_verbs=settings.strict_verbs,
        web=settings.web,
        web_client=settings.web_client,
    )


def _identities(settings: Settings, pki: PKI) -> Identities:
    uri = f"https://127.0.0.1:{settings.port}{KEYS}" if settings.port else ""
    accounts = Accounts([ISSUER], signing_key_file=pki.account_key, jwks_uri=uri)
    return Identities(settings.token_file, settings.issuers, accounts, bootstrap_tokens=True)


def poollet_settings(settings: Settings, certificates: Certificates) -> PoolletSettings:
    """Return the settings of the poollet."""
    pki = certificates.pki
    return PoolletSettings(
        pool=POOL,
        dialect=settings.dialect,
        provider_id=f"twisted-exec://{POOL}",
        certificate=certificates.poollet.certificate,
        key=certificates.poollet.key,
        listen="tcp:0:interface=127.0.0.1",
        drain_seconds=min(BEHIND_SECONDS, settings.drain_seconds),
        client_ca=pki.client_ca,
        requestheader_ca=pki.forwarding_ca,
        requestheader_names=[FORWARDING_USER],
        addresses=[("InternalIP", "127.0.0.1")],
        sessions=settings.sessions,
        strict_verbs=settings.strict_verbs,
    )

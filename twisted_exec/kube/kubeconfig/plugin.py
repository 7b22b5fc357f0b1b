"""
Credential plugins (``exec`` of a kubeconfig's user).

Source: ``k8s.io/client-go/plugin/pkg/client/auth/exec``.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.kube.kubeconfig.client_config import (
    ALWAYS,
    NEVER,
    ClientConfig,
    ExecPlugin,
    KubeConfigError,
)
from twisted_exec.program.process_groups import kill_group, leading

PLUGIN_SECONDS = 60.0
INTERACTIVE_SECONDS = 600.0
"""Time limit of an interactive plugin, whose user may need a second factor."""

MAX_OUTPUT_BYTES = 1 << 20

_KIND = "ExecCredential"


@dataclass(frozen=True)
class Credential:
    """
    A plugin's answer: a token, a certificate with its key (PEM), or both.

    :param expires: timezone-aware; ``None`` for never.
    """

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    expires: datetime | None = None


def run_plugin(
    plugin: ExecPlugin, config: ClientConfig, reactor: Any, *, interactive: bool = False
) -> Deferred[Credential]:
    """
    Run a plugin.

    :param interactive: standard input is a terminal with a user, and no other code reads from it.
    :return: fails with :class:`KubeConfigError`. Cancelling kills the plugin.
    """

    async def ran() -> Credential:
        talks = interactive and plugin.interactive_mode != NEVER
        if plugin.interactive_mode == ALWAYS and not talks:
            raise _failed(plugin, "needs a terminal as standard input, and there is none")
        environment = {
            **os.environ,
            **dict(plugin.env),
            "KUBERNETES_EXEC_INFO": json.dumps(exec_info(plugin, config, talks)),
        }
        seconds = INTERACTIVE_SECONDS if talks else PLUGIN_SECONDS
        run = _Run(plugin, reactor, seconds, leads_group=not talks)
        try:
            _spawn(run, environment, talks, reactor)
            return parse_credential(plugin, await run.printed)
        except KubeConfigError as problem:
            if not (source := config.credentials_source):
                raise
            is_missing = shutil.which(plugin.command) is None
            remedy = "install it" if is_missing else "run it by hand, or log in again"
            raise KubeConfigError(f"{problem}; {remedy}: it is the plugin of {source}") from None

    return Deferred.fromCoroutine(ran())


def exec_info(plugin: ExecPlugin, config: ClientConfig, interactive: bool) -> dict[str, Any]:
    """
    Return the content of ``KUBERNETES_EXEC_INFO``.

    :raises KubeConfigError: the CA cannot be read.
    """
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {
            "server": config.server,
            "tls-server-name": config.tls_server_name,
            "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(config.ca.read()).decode("ascii"),
            "proxy-url": config.proxy_url,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
        if plugin.cluster_config:
            spec["cluster"]["config"] = json.loads(plugin.cluster_config)
    return {"kind": _KIND, "apiVersion": plugin.api_version, "spec": spec}


def _spawn(run: _Run, environment: Mapping[str, str], talks: bool, reactor: Any) -> None:
    plugin = run.plugin
    path = shutil.which(plugin.command)
    if path is None:
        hint = f": {' '.join(plugin.install_hint.split())}" if plugin.install_hint else ""
        raise _failed(plugin, f"is not there, or is no program{hint}")
    nothing = os.open(os.devnull, os.O_RDONLY)
    words = [path, *plugin.args]
    if not talks:  # another session could not read the terminal
        words = leading(words)
    try:
        reactor.spawnProcess(
            run,
            words[0],
            words,
            env=environment,
            # The plugin inherits standard error, where it prompts for passwords.
            childFDs={0: 0 if talks else nothing, 1: "r", 2: 2},
        )
    except OSError as problem:
        raise _failed(plugin, f"cannot be started: {problem.strerror}") from None
    finally:
        os.close(nothing)


class _Run(ProcessProtocol):
    def __init__(
        self, plugin: ExecPlugin, reactor: Any, seconds: float, *, leads_group: bool
    ) -> None:
        self.plugin = plugin
        self._leads_group = leads_group
        self._pid = 0
        self._at_stop: Any = None
        self.printed: Deferred[bytes] = Deferred(lambda _: self._kill())
        self._output = b""
        self._reactor, self._seconds = reactor, seconds
        self._limit: IDelayedCall | None = None

    def connectionMade(self) -> None:
        transport: Any = self.transport
        self._pid = transport.pid
        self._limit = self._reactor.callLater(self._seconds, self._too_slow)
        # A signal of the terminal does not reach a plugin in another session.
        self._at_stop = self._reactor.addSystemEventTrigger("before", "shutdown", self._kill)

    def outReceived(self, data: bytes) -> None:
        self._output += data
        if len(self._output) > MAX_OUTPUT_BYTES:
            self._give_up(f"prints more than {MAX_OUTPUT_BYTES >> 20} MiB")

    def processEnded(self, reason: Failure) -> None:
        self._disarm()
        self._pid = 0
        if self.printed.called:
            return
        if reason.check(ProcessDone):
            self.printed.callback(self._output)
            return
        value: Any = reason.value
        how = f"exit code {value.exitCode}" if value.signal is None else f"signal {value.signal}"
        self.printed.errback(_failed(self.plugin, f"failed with {how}"))

    def _too_slow(self) -> None:
        self._limit = None
        self._give_up(f"did not answer within {self._seconds:g} s")

    def _give_up(self, why: str) -> None:
        self._output = b""
        self._kill()
        if not self.printed.called:
            self.printed.errback(_failed(self.plugin, why))

    def _kill(self) -> None:
        self._disarm()
        transport: Any = self.transport
        # Its children may keep the output open; do not wait for them.
        transport.loseConnection()
        if self._leads_group and self._pid:
            kill_group(self._pid)  # its children may live although it has ended
        if transport.pid is not None:
            transport.signalProcess("KILL")

    def _disarm(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()
        trigger, self._at_stop = self._at_stop, None
        if trigger is not None:
            self._reactor.removeSystemEventTrigger(trigger)


def parse_credential(plugin: ExecPlugin, output: bytes) -> Credential:
    """
    Parse a plugin's output.

    :raises KubeConfigError: it is not a credential. The message does not quote it, as it may hold
        secrets.
    """
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        raise _failed(plugin, "did not print JSON") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise _failed(plugin, f"did not print an {_KIND}")
    if document.get("apiVersion") != plugin.api_version:
        raise _failed(plugin, f"did not answer in the apiVersion {plugin.api_version}")
    status = document.get("status")
    if not isinstance(status, dict):
        raise _failed(plugin, "answered without a status")
    keys = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
    values = {key: status.get(key) or "" for key in keys}
    if not all(isinstance(value, str) for value in values.values()):
        raise _failed(plugin, "answered with something other than strings")
    token, certificate, key, expires = (values[key] for key in keys)
    if bool(certificate) != bool(key):
        raise _failed(plugin, "answered only one of clientCertificateData and clientKeyData")
    if not token and not certificate:
        raise _failed(plugin, "answered neither a token nor a client certificate")
    return Credential(
        token,
        _encoded(plugin, certificate),
        _encoded(plugin, key),
        _moment(plugin, expires) if expires else None,
    )


def _encoded(plugin: ExecPlugin, text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise _failed(plugin, "answered what is no text") from None


def _moment(plugin: ExecPlugin, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment.timestamp()
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _failed(plugin, "answered an expirationTimestamp that is not RFC 3339")
    return moment


def _failed(plugin: ExecPlugin, what: str) -> KubeConfigError:
    return KubeConfigError(f"the credential plugin {plugin.command} {what}")

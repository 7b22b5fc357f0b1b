"""
The configuration file of shipping.

::

    labels: {pool: pool-a}
    sinks:
      loki:
        kind: otlp
        url: https://loki.example:3100/otlp/v1/logs
        ca_file: /etc/twisted-exec/loki-ca.crt
        token_file: /etc/twisted-exec/loki.token
      central:
        kind: syslog
        address: logs.example:6514
        ca_file: /etc/twisted-exec/syslog-ca.crt
      files:
        kind: files
        directory: /var/log/consoles
        max_size: 64Mi
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.kube.kubeconfig.client_config import KubeConfigError, is_loopback
from twisted_exec.program.config_file import ConfigError, Reader, read_yaml
from twisted_exec.program.options.values import duration
from twisted_exec.shipping.files import FilesSink
from twisted_exec.shipping.otlp import OTLPSink, collector_config, read_headers
from twisted_exec.shipping.syslog import DEFAULT_PORT, FACILITIES, SyslogSink
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.errors import TLSConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,62}")
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+))(?::(\d{1,5}))?")

_START = ("oldest", "newest")


@dataclass(frozen=True)
class SinkConfig:
    """
    One sink.

    :param newest: begin with the next output of a machine that has no cursor for this sink.
    :param max_age_seconds: skip older lines; 0 for no limit.
    """

    name: str
    make: Callable[[Any], Any]
    newest: bool = False
    plain: bool = False
    max_age_seconds: float = 0.0


@dataclass(frozen=True)
class ShippingConfig:
    """The whole file; ``labels`` are added to every line."""

    sinks: Sequence[SinkConfig]
    labels: Mapping[str, str]


def load(path: str) -> ShippingConfig:
    """
    Read a file.

    :raises ConfigError: it cannot be used.
    """
    return parse(read_yaml(path), path)


def parse(document: object, source: str = "configuration") -> ShippingConfig:
    """
    Read a document.

    :raises ConfigError: it cannot be used.
    """
    reader = Reader(document, source)
    labels = _labels(reader)
    sinks = [_sink(name, each) for name, each in reader.mappings("sinks").items()]
    reader.done()
    return ShippingConfig(sinks, labels)


def _labels(reader: Reader) -> Mapping[str, str]:
    labels: dict[str, str] = reader.take("labels", dict, {})
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise reader.error(f"labels: {name!r} is not a name such as pool or data_center")
        if not isinstance(value, str) or not value or not value.isprintable():
            raise reader.error(f"labels: the value of {name} must be a printable text")
    return labels


def _sink(name: str, reader: Reader) -> SinkConfig:
    if not _NAME.fullmatch(name):
        raise reader.error("the name of a sink has lower-case letters, digits and hyphens")
    newest = reader.choice("start", _START, "oldest") == "newest"
    plain = reader.take("plain", bool, False)
    age = reader.take("max_age", str, "0s")
    try:
        max_age = duration(age)
    except ValueError as problem:
        raise reader.error(f"max_age: {problem}") from None
    make = _KINDS[reader.choice("kind", tuple(_KINDS), "")](name, reader)
    reader.done()
    return SinkConfig(name, make, newest, plain, max_age)


def _otlp(name: str, reader: Reader) -> Callable[[Any], Any]:
    text = reader.take("url", str)
    headers_file = reader.take("headers_file", str, "")
    token_file = reader.take("token_file", str, "")
    compresses = reader.choice("compression", ("gzip", "none"), "gzip") == "gzip"
    certificate, key = _key_pair(reader)
    ca = reader.take("ca_file", str, "")
    try:
        url = urlsplit(text)
        is_valid = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not text.isascii() or not text.isprintable() or " " in text:
        raise reader.error(f"url {text!r} is not a URL such as https://HOST:4318/v1/logs")
    if url.username is not None or url.fragment:
        raise reader.error("url has a user or a fragment; write credentials to headers_file")
    if url.scheme == "http" and (ca or certificate):
        raise reader.error("ca_file and certificate_file need a url with https")
    if url.scheme == "http" and (token_file or headers_file) and not is_loopback(url):
        raise reader.error("token_file and headers_file need a url with https")
    try:
        config = collector_config(
            url, ca=ca, certificate=certificate, key=key, token_file=token_file
        )
        if headers_file:
            read_headers(headers_file)
    except (KubeConfigError, TLSConfigError) as problem:
        raise reader.error(str(problem)) from None
    return lambda reactor: OTLPSink(
        name,
        config,
        url,
        reactor,
        time.time_ns,
        headers_file=headers_file,
        compresses=compresses,
    )


def _syslog(name: str, reader: Reader) -> Callable[[Any], Any]:
    address = reader.take("address", str)
    facility = reader.choice("facility", tuple(FACILITIES), "local0")
    ca = reader.take("ca_file", str, "")
    certificate, key = _key_pair(reader)
    match = _ADDRESS.fullmatch(address)
    port = int(match[3] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise reader.error(f"address {address!r} is not of the form HOST:PORT")
    host = match[1] or match[2]
    return lambda reactor: SyslogSink(
        name,
        host,
        port,
        ClientCredentials(ca=ca, certificate=certificate, key=key, alpn=(), clock=reactor),
        reactor,
        facility=FACILITIES[facility],
    )


def _files(name: str, reader: Reader) -> Callable[[Any], Any]:
    directory = reader.take("directory", str)
    max_bytes = reader.size("max_size", "64Ki", "1Ti", "64Mi") if reader.has("max_size") else 0
    old_files = int(reader.number("old_files", 1, 9999, 5))
    timestamps = reader.take("timestamps", bool, True)
    if not directory.startswith("/"):
        raise reader.error(f"directory {directory!r} is not an absolute path")
    return lambda reactor: FilesSink(
        name,
        directory,
        reactor,
        max_bytes=max_bytes,
        old_files=old_files,
        timestamps=timestamps,
    )


def _key_pair(reader: Reader) -> tuple[str, str]:
    certificate = reader.take("certificate_file", str, "")
    key = reader.take("key_file", str, "")
    if bool(certificate) != bool(key):
        raise reader.error("certificate_file and key_file go together")
    return certificate, key


_KINDS = {"otlp": _otlp, "syslog": _syslog, "files": _files}

__all__ = ["ConfigError", "ShippingConfig", "SinkConfig", "load", "parse"]

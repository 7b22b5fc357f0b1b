"""
Signed requests to one bucket: its address, the credentials, and the signatures.

Requests to S3 are signed with AWS Signature Version 4.
Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html

Address and credentials of a bucket come from the URL in ``--recording-store``:
``s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=...&style=...&ca=...&credentials=...``
"""

from __future__ import annotations

import configparser
import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    KubeConfigError,
    Material,
    is_loopback,
    proxy_for,
)
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading, warn_if_public

_ANSWER_BYTES = 4 << 20
_SECONDS = 60.0
_BODY_SECONDS = 600.0
"""Time limit of a request with a body."""
_EMPTY_DIGEST = sha256(b"").hexdigest()


class Transport(Protocol):
    """The methods of :class:`HTTPTransport` that a bucket needs."""

    async def collect(
        self, request: Request, *, timeout_seconds: float, limit_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """See :meth:`HTTPTransport.collect`."""

    def close(self) -> Deferred[None]:
        """See :meth:`HTTPTransport.close`."""


@dataclass(frozen=True)
class Call:
    """
    A request.

    :param key: of the object; empty for the bucket.
    :param payload: SHA-256 of the body in hexadecimal digits; empty if the caller does not know it.
    """

    method: str
    key: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    payload: str = ""
    limit_bytes: int = _ANSWER_BYTES


class Bucket:
    """
    Sends requests to a bucket.

    :param credentials: returns the present credentials, or raises :class:`StoreError`.
    :param now: returns the time of day in UTC.
    """

    def __init__(
        self,
        target: BucketTarget,
        credentials: Callable[[], AccessKey],
        transport: Transport,
        now: Callable[[], datetime],
    ) -> None:
        self.target = target
        self._credentials, self._transport, self._now = credentials, transport, now

    async def send(self, call: Call) -> tuple[int, bytes]:
        """
        Send a request; return code and body of the answer, which may be a refusal.

        :raises StoreError: the bucket does not answer, or there are no credentials.
        """
        path = self.target.root + call.key
        payload = call.payload or (sha256(call.body).hexdigest() if call.body else _EMPTY_DIGEST)
        signed = RequestSigner(self._credentials(), self.target.region).sign(
            call.method,
            path,
            call.parameters,
            {"host": self.target.host, **call.headers},
            payload,
            self._now(),
        )
        request = Request(
            call.method,
            f"{path}?{query(call.parameters)}" if call.parameters else path,
            call.body,
            "application/octet-stream",
            headers=signed,
        )
        try:
            code, _, body = await self._transport.collect(
                request,
                timeout_seconds=_BODY_SECONDS if call.body else _SECONDS,
                limit_bytes=call.limit_bytes,
            )
        except CancelledError:
            raise
        except (APIError, KubeConfigError) as problem:
            raise StoreError("unreachable", str(problem)) from None
        return code, body

    def close(self) -> Deferred[None]:
        """Close connections."""
        return self._transport.close()


def transport_of(target: BucketTarget, reactor: Any) -> HTTPTransport:
    """
    Return the connections to a bucket.

    :raises KubeConfigError: the proxy in the environment is not the URL of a proxy.
    """
    config = ClientConfig(
        server=target.server,
        ca=Material(path=target.ca),
        proxy_url=proxy_for(target.endpoint, os.environ),
    )
    return HTTPTransport(config, reactor, peer="the bucket")


ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "s3"


@dataclass(frozen=True)
class AccessKey:
    """An access key, and the token of a temporary one."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class RequestSigner:
    """Signs requests of one user in one region."""

    credentials: AccessKey
    region: str

    def sign(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        headers: Mapping[str, str],
        payload: str,
        now: datetime,
    ) -> Sequence[tuple[str, str]]:
        """
        Return the headers of a signed request.

        :param path: percent-encoded.
        :param headers: all that are signed, ``Host`` among them.
        :param payload: SHA-256 of the body, in hexadecimal digits.
        :param now: in UTC.
        """
        signed = {name.lower(): value.strip() for name, value in headers.items()}
        signed["x-amz-date"] = time = f"{now:%Y%m%dT%H%M%SZ}"
        signed["x-amz-content-sha256"] = payload
        if self.credentials.token:
            signed["x-amz-security-token"] = self.credentials.token
        names = ";".join(sorted(signed))
        lines = [method, path, query(parameters)]
        lines += [f"{name}:{signed[name]}" for name in sorted(signed)]
        canonical = "\n".join([*lines, "", names, payload])
        scope = f"{now:%Y%m%d}/{self.region}/{_SERVICE}/aws4_request"
        text = f"{ALGORITHM}\n{time}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.credentials.secret}".encode()
        for part in scope.split("/"):
            key = _mac(key, part)
        signature = _mac(key, text).hex()
        signed["authorization"] = (
            f"{ALGORITHM} Credential={self.credentials.key_id}/{scope},"
            f"SignedHeaders={names},Signature={signature}"
        )
        return list(signed.items())


def query(parameters: Mapping[str, str]) -> str:
    """Return the query of a URL in the form that is signed."""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parameters.items())
    )


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


_PARAMETERS = ("endpoint", "region", "style", "ca", "credentials")
_REGION = "us-east-1"
_PROFILE = "default"

# Neither needs to be percent-encoded, so that the path that is signed is the path that is sent.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_PREFIX_CHARACTERS = 500
_REGION_NAME = re.compile(r"[a-z0-9-]{1,32}")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")


@dataclass(frozen=True)
class BucketTarget:
    """
    A bucket, and our prefix in it.

    :param prefix: of the names of all objects; without slashes at its ends, maybe empty.
    :param endpoint: URL of the service, without the bucket.
    :param is_path_style: the bucket is in the path, not in the name of the host.
    :param ca: file of the certificates to trust; empty for those of the system.
    :param credentials: file of an access key; empty for the environment.
    """

    bucket: str
    prefix: str
    endpoint: SplitResult
    region: str = _REGION
    is_path_style: bool = False
    ca: str = ""
    credentials: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (f"s3://{self.bucket}", self.prefix)))

    @property
    def host(self) -> str:
        """Host and port of requests."""
        return (
            self.endpoint.netloc if self.is_path_style else f"{self.bucket}.{self.endpoint.netloc}"
        )

    @property
    def server(self) -> str:
        """URL of the server of requests."""
        return f"{self.endpoint.scheme}://{self.host}"

    @property
    def root(self) -> str:
        """Path of the bucket; ends with a slash."""
        return f"/{self.bucket}/" if self.is_path_style else "/"


def parse_target(text: str) -> BucketTarget:
    """
    Read the URL of a bucket.

    :raises ValueError: the message is one line and shows no secret.
    """
    try:
        url = urlsplit(text)
        pairs = parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query))
    except ValueError:
        raise ValueError("it is not a URL") from None
    if "@" in url.netloc:
        raise ValueError("it has a user: write credentials to a file, and add credentials=FILE")
    options = dict(pairs)
    for name, value in pairs:
        if name not in _PARAMETERS or not value:
            raise ValueError(f"its parameters are {', '.join(_PARAMETERS)}, each with a value")
    if len(options) != len(pairs) or url.fragment:
        raise ValueError("a parameter is repeated, or the URL has a fragment")
    bucket, prefix = url.netloc, url.path.strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{bucket!r} is not the name of a bucket")
    if prefix and (len(prefix) > _PREFIX_CHARACTERS or not _PREFIX.fullmatch(prefix)):
        raise ValueError("the prefix has letters, digits, '.', '_' and '-', separated by slashes")
    region = options.get("region", _REGION)
    if not _REGION_NAME.fullmatch(region):
        raise ValueError(f"{region!r} is not a region")
    style = options.get("style", "path" if "endpoint" in options else "virtual")
    if style not in ("path", "virtual"):
        raise ValueError("style is path or virtual")
    endpoint = _endpoint(options.get("endpoint", f"https://s3.{region}.amazonaws.com"))
    if style == "virtual" and _ADDRESS.fullmatch(endpoint.hostname or ""):
        raise ValueError("the endpoint is an address: the style must be path")
    return BucketTarget(
        bucket,
        prefix,
        endpoint,
        region,
        style == "path",
        *(_path(options.get(name, "")) for name in ("ca", "credentials")),
    )


def _endpoint(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        is_valid = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("endpoint is not a URL such as https://HOST:PORT")
    if "@" in url.netloc or url.query or url.fragment or url.path.strip("/"):
        raise ValueError("endpoint has more than scheme, host and port")
    if url.scheme == "http" and not is_loopback(url):
        raise ValueError("endpoint needs https: recordings would cross the network in the clear")
    port = {"http": ":80", "https": ":443"}[url.scheme]
    return SplitResult(url.scheme, url.netloc.lower().removesuffix(port), "", "", "")


def _path(text: str) -> str:
    # Absolute, because twistd changes the working directory when it becomes a daemon.
    return os.path.abspath(text) if text else ""


def credentials_of(
    target: BucketTarget, environ: Mapping[str, str], clock: IReactorTime
) -> Callable[[], AccessKey]:
    """
    Return a function that returns the present credentials.

    A file may be replaced at any time.  They never come from the metadata service of a cloud:
    this program should not connect to such an address.

    :return: raises :class:`StoreError` if there are none.
    """
    path = target.credentials
    if path:
        file = Reloading([path], _parse_file, clock)

        def from_file() -> AccessKey:
            try:
                return file.get()
            except TLSConfigError as problem:
                raise StoreError("refused", str(problem)) from None

        if os.path.exists(path):
            warn_if_public(path, os.stat(path).st_mode)
        return from_file

    def from_environment() -> AccessKey:
        key_id, secret = (environ.get(f"AWS_{name}", "") for name in _ENVIRONMENT)
        if not key_id or not secret:
            raise StoreError(
                "refused",
                f"{target} has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add "
                "credentials=FILE to the URL of the store",
            )
        return _checked(key_id, secret, environ.get("AWS_SESSION_TOKEN", ""))

    return from_environment


_ENVIRONMENT = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")


def _parse_file(content: bytes) -> AccessKey:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(content.decode())
        section = parser[_PROFILE]
        key_id, secret = section["aws_access_key_id"], section["aws_secret_access_key"]
        return _checked(key_id, secret, section.get("aws_session_token", ""))
    except (configparser.Error, UnicodeDecodeError, KeyError, StoreError):
        # Do not quote the file: the wrong part may be the secret.
        raise TLSConfigError(
            f"the file of credentials has no section [{_PROFILE}] with aws_access_key_id and "
            "aws_secret_access_key, in printable characters"
        ) from None


def _checked(key_id: str, secret: str, token: str) -> AccessKey:
    for text in (key_id, secret, token):
        if not text.isascii() or not (text or "-").isprintable():
            raise StoreError("refused", "the credentials of the bucket are not printable")
    return AccessKey(key_id, secret, token)

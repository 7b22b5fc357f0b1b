"""
The address of a bucket, and the credentials for it.

The address is the URL in ``--recording-store``:
``s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=...&style=...&ca=...&credentials=...``
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlsplit

from twisted.internet.interfaces import IReactorTime

from twisted_exec.kube.kubeconfig.client_config import is_loopback
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading, warn_if_public

_PARAMETERS = ("endpoint", "region", "style", "ca", "credentials")
_REGION = "us-east-1"
_PROFILE = "default"

# Neither needs to be percent-encoded, so the signed path is the sent path.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_PREFIX_CHARACTERS = 500
_REGION_NAME = re.compile(r"[a-z0-9-]{1,32}")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")

_ENVIRONMENT = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")


@dataclass(frozen=True)
class AccessKey:
    """An access key, and the token of a temporary one."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class BucketTarget:
    """
    A bucket, and our prefix in it.

    :param prefix: of the names of all objects; without slashes at its ends, maybe empty.
    :param is_path_style: the bucket is in the path, not in the name of the host.
    :param ca: file of the certificates to trust; empty for those of the system.
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
        return (
            self.endpoint.netloc if self.is_path_style else f"{self.bucket}.{self.endpoint.netloc}"
        )

    @property
    def server(self) -> str:
        return f"{self.endpoint.scheme}://{self.host}"


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
    # No wildcard in a certificate is for a bucket with dots.
    is_in_path = "endpoint" in options or "." in bucket
    style = options.get("style", "path" if is_in_path else "virtual")
    if style not in ("path", "virtual"):
        raise ValueError("style is path or virtual")
    endpoint = _endpoint(options.get("endpoint", f"https://s3.{region}.amazonaws.com"))
    if style == "virtual" and _ADDRESS.fullmatch(endpoint.hostname or ""):
        raise ValueError("the endpoint is an address: the style must be path")
    if style == "virtual" and "." in bucket:
        raise ValueError("the name of the bucket has dots: the style must be path")
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
    Return a function that returns the present credentials, or raises :class:`StoreError`.

    The credentials do not come from the metadata service of a cloud: this program should not
    connect to such an address.
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

"""
The ``--recording-store`` option: where closed recordings are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.program.options import ProgramOption
from twisted_exec.recording.stores.bucket import (
    Bucket,
    BucketTarget,
    credentials_of,
    parse_target,
    transport_of,
)
from twisted_exec.recording.stores.directory import DirectoryStore
from twisted_exec.recording.stores.interfaces import IRecordingStore
from twisted_exec.recording.stores.s3 import S3Store

FORMS = "file:///DIRECTORY or s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION&credentials=FILE"
"""The forms of the option's value."""

MakeStore = Callable[[Any], IRecordingStore]
"""Creates a store from a reactor."""


def store_option(text: str) -> MakeStore:
    """
    Read ``--recording-store``.

    :raises ValueError: the message is one line and shows no secret.
    """
    scheme, separator, rest = text.partition("://")
    if scheme == "file" and separator:
        path = unquote(rest)
        if not path.startswith("/") or "\0" in path or urlsplit(text).query:
            raise ValueError("the URL of a directory is file:///DIRECTORY, an absolute path")
        return partial(DirectoryStore, os.path.normpath(path))
    if scheme == "s3" and separator:
        return partial(_bucket, parse_target(text))
    raise ValueError(f"give {FORMS}")


def _bucket(target: BucketTarget, reactor: Any) -> IRecordingStore:
    try:
        transport = transport_of(target, reactor)
    except KubeConfigError as problem:
        raise ValueError(str(problem)) from None
    bucket = Bucket(target, credentials_of(target, os.environ, reactor), transport, _now)
    return S3Store(bucket, reactor)


def _now() -> datetime:
    return datetime.now(UTC)


RECORDING_STORE = ProgramOption(
    "recording-store", f"Where closed recordings are stored: {FORMS}.", store_option
)
"""The option of programs with a machine runtime."""

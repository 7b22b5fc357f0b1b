"""
The ``--recording-store`` option: where closed recordings are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.recording.stores.bucket import parse_target
from twisted_exec.recording.stores.directory import DirectoryStore
from twisted_exec.recording.stores.interfaces import IRecordingStore
from twisted_exec.recording.stores.s3 import bucket_store

FORMS = "file:///DIRECTORY or s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION&credentials=FILE"
"""The forms of the option's value."""

MakeStore = Callable[[Any], IRecordingStore]


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
        target = parse_target(text)
        if find_spec("boto3") is None:
            raise ValueError(
                "a bucket needs boto3, the extra s3 of twisted-exec: type pip install boto3 in the "
                "environment of this program"
            )
        return partial(bucket_store, target)
    raise ValueError(f"give {FORMS}")


RECORDING_STORE = ProgramOption(
    "recording-store", f"Where closed recordings are stored: {FORMS}.", store_option
)
"""The option of programs with a machine runtime."""

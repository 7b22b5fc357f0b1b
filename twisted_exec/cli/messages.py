"""
Messages for the user of a terminal: one line each, without control characters.

Messages have colours if the user wants them.  Sources: https://no-color.org/ for ``NO_COLOR``, and
ECMA-48 for the sequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TextIO

from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.spaces import SPACES


def one_line(text: str) -> str:
    """Return a server's text for the terminal: one line without control characters."""
    words = " ".join(text.split())
    return "".join(char if char.isprintable() else "?" for char in words)


def explain(error: BaseException, namespace: str = "") -> str:
    """
    The one line for a session that could not be opened.

    :param namespace: of the machine, for the message that it does not exist.
    """
    from twisted_exec.api.status import APIError
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

    if isinstance(error, APIError):
        return _explain_refusal(error, namespace)
    if isinstance(error, KubeConfigError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


def _explain_refusal(error: Any, namespace: str) -> str:
    kind, group, name = (error.details.get(key) or "" for key in ("kind", "group", "name"))
    if error.reason == "NotFound" and kind == SPACES.plural:
        return f"{error.message}; kubectl get spaces -A lists all"
    if error.reason == "NotFound" and kind and name:
        singular = str(kind).removesuffix("s")
        qualified = f"{kind}.{group}" if group else kind
        message = str(error.message).replace(f'{qualified} "{name}"', f'{singular} "{name}"')
        is_machine = any(kind == dialect.workload.plural for dialect in DIALECTS)
        if namespace and is_machine and message.endswith(" not found"):
            message += f' in namespace "{namespace}"'
        return message
    if error.reason == "Forbidden" and "forbidden" not in error.message:
        return f"forbidden: {error.message}"
    if error.reason == "Unauthorized":
        return f"the server does not accept these credentials: {error.message}"
    if error.retry_after_seconds:
        return f"{error.message}; try again in {error.retry_after_seconds} s"
    return str(error.message)


class Colour(Enum):
    """Parameter of the sequence that selects a colour."""

    NONE = ""
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    BOLD_RED = "1;31"
    DIM = "2"


Paint = Callable[[str, Colour], str]
"""Colours a text."""


def plain(text: str, colour: Colour) -> str:
    """Return a text without colour."""
    return text


def painted(text: str, colour: Colour) -> str:
    """Return a text in a colour, followed by the reset to the default."""
    return f"\x1b[{colour.value}m{text}\x1b[m" if colour.value else text


def painter(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paint:
    """
    Return the function that colours texts for a stream.

    There are no colours without a terminal, if ``NO_COLOR`` is not empty, or if ``TERM``
    is ``dumb``.
    """
    wants_colours = not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    return painted if wants_colours and stream.isatty() else plain


FAILED_CODE = 125
"""Exit code of a script whose session failed; a command's own code could not be told from 1."""

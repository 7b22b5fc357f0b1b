"""
Messages for the user of a terminal: one line each, without control characters.

Sources: https://no-color.org/ for ``NO_COLOR``, and ECMA-48 for the sequences.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import APIError
from twisted_exec.cli.refusal_texts import DENIED

if TYPE_CHECKING:
    from twisted_exec.kube.kubeconfig.client_config import ClientConfig

_COMMAND = re.compile(
    r"(?:(?<=^  )|(?<=: )|(?<=: use )|(?<= with )|(?<= run )|(?<=, or ))"
    r"(?:kubectl|twisted-exec) (?:'[^']*'|[^';,]|[;,](?! ))*"
)
"""A command to copy, behind what says what it is for."""
_POLICY = re.compile(r"; (?=ConsolePolicy \")")

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_OTHER_CA = (
    "get the CA of the server from its administrator, and give --certificate-authority FILE, or set "
    "certificate-authority of this cluster in the kubeconfig"
)
_WITH_TLS = "use https:// if the server speaks TLS on this port"
_UNREACHABLE = {
    Obstacle.CONNECTION_REFUSED: "start that API server, or choose another cluster with --context",
    Obstacle.NAME_UNKNOWN: "correct the server in the kubeconfig, or this host's DNS settings",
    Obstacle.CERTIFICATE_UNTRUSTED: _OTHER_CA,
    Obstacle.CERTIFICATE_OF_OTHER: "use an address that the certificate names, or --tls-server-name",
    Obstacle.NO_TLS: "correct the port of the server, or use http:// if it has no TLS",
}
"""Remedies for a server that cannot be reached."""
_UNREACHABLE_IN_CLEAR = _UNREACHABLE | {
    Obstacle.CONNECTION_LOST: _WITH_TLS,
    Obstacle.NO_HTTP: _WITH_TLS,
}

ASK_FOR_ROLE = "ask an administrator for the role"
_ROLE_TO_READ = re.compile(": ask an administrator for the role [^:;]*$")
"""The server's own remedy, which has no command."""

_SUBJECT = re.compile(r'^\w+ "[^"]+": ')

FAILED_CODE = 125
"""Exit code of a script whose session failed: 1 could be a code of the script's command."""


def one_line(text: str) -> str:
    """Return a server's text for the terminal: one line without control characters."""
    words = " ".join(text.split())
    return "".join(char if char.isprintable() else "?" for char in words)


def duration(seconds: float) -> str:
    """Return a length of time for people: ``3.2 s``, ``2 min 5 s`` or ``1 h 12 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def rows(line: str, columns: int) -> list[str]:
    """
    Return the rows of a message for a terminal of so many columns, broken at blanks.

    Each policy that refuses begins a row. Each command gets a row of its own, which is not broken,
    so that it can be copied.
    """
    if len(line) <= columns:
        return [line]
    return [row for part in _POLICY.split(line) for row in _rows_of_part(part, columns)]


def _rows_of_part(line: str, columns: int) -> list[str]:
    from twisted_exec.wire.notices import wrapped

    broken: list[str] = []
    end = 0
    for command in _COMMAND.finditer(line):
        broken += _text_rows(line[end : command.start()], columns, wrapped, is_first=not end)
        broken.append(f"  {command[0].rstrip()}")
        end = command.end()
    return broken + _text_rows(line[end:], columns, wrapped, is_first=not end)


def _text_rows(
    text: str, columns: int, wrapped: Callable[[str, int], list[str]], *, is_first: bool
) -> list[str]:
    text = text.rstrip() if is_first else text.strip(" ,;")
    return wrapped(text if is_first else f"  {text}", columns) if text else []


def for_stderr(text: str) -> str:
    """
    Return a message for standard error, without control characters; a terminal gets it broken at
    blanks.
    """
    return _for_stream(text, sys.stderr)


def for_stdout(text: str) -> str:
    """Return a sentence for standard output; as :func:`for_stderr`."""
    return _for_stream(text, sys.stdout)


def _for_stream(text: str, stream: TextIO | None) -> str:
    line = one_line(text)
    if stream is None or not stream.isatty():
        return line
    return "\n".join(rows(line, os.get_terminal_size(stream.fileno()).columns or 80))


def say(line: str) -> None:
    """Print a message on standard error; see :func:`for_stderr`."""
    if sys.stderr is not None:  # print would take standard output instead
        try:
            print(for_stderr(line), file=sys.stderr, flush=True)
        except OSError:  # it is closed, or full
            _discard(2)


def output_failure(error: BaseException) -> str:
    """
    Return the message if an output cannot be written, as on a full disk; empty for other errors.

    The rest of standard output's buffer is then lost.
    """
    if (
        not isinstance(error, OSError)
        or error.filename is not None
        or error.errno not in _UNWRITABLE
    ):
        return ""
    _discard(1)
    return f"cannot write output: {error.strerror}"


def _discard(descriptor: int) -> None:
    """Drop the buffer of a standard descriptor, which cannot be written at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def explain(error: BaseException, namespace: str = "", config: ClientConfig | None = None) -> str:
    """
    Return the line for a session that could not be opened, or a request that failed.

    :param namespace: of the machine, for the message that it does not exist.
    """
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

    if isinstance(error, APIError):
        return _explain_refusal(error, namespace, config)
    if isinstance(error, KubeConfigError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


def _explain_refusal(error: Any, namespace: str, config: ClientConfig | None) -> str:
    kind, group, name = (error.details.get(key) or "" for key in ("kind", "group", "name"))
    if error.reason == "NotFound" and kind == SPACES.plural:
        return f"{error.message}; kubectl get spaces -A lists all spaces"
    if error.reason == "NotFound" and kind and name:
        singular = str(kind).removesuffix("s")
        qualified = f"{kind}.{group}" if group else kind
        message = str(error.message).replace(f'{qualified} "{name}"', f'{singular} "{name}"')
        is_machine = any(kind == dialect.workload.plural for dialect in DIALECTS)
        if namespace and is_machine and message.endswith(" not found"):
            message += f' in namespace "{namespace}"'
        return message
    if error.reason == "Forbidden":
        message = str(error.message)
        if remedy := role_to_request(message):
            if remedy.startswith(ASK_FOR_ROLE) and _may_be_mistyped(namespace, message):
                remedy = f'is the namespace "{namespace}" right? If so, {remedy}'
            message = f"{_ROLE_TO_READ.sub('', message)}; {remedy}"
        return message if "forbidden" in message else f"forbidden: {message}"
    if error.reason == "Unauthorized":
        return _unauthorized(str(error.message), config)
    if error.retry_after_seconds:
        return f"{error.message}; try again in {error.retry_after_seconds} s"
    message = str(error.message)
    obstacles = obstacles_of(error)
    # The message of another server's error names another server.
    is_ours = config is not None and config.server in message
    if config is not None and is_ours and Obstacle.SERVER_UNREACHABLE in obstacles:
        remedy = remedy_for(obstacles, config) or "twisted-exec doctor checks each step to it"
        return f"{message}; {remedy}"
    return message


def remedy_for(obstacles: Iterable[Obstacle], config: ClientConfig) -> str:
    """Return the remedy for a server that cannot be reached; empty if the cause is not known."""
    remedies = _UNREACHABLE_IN_CLEAR if config.url.scheme == "http" else _UNREACHABLE
    remedy = next((remedies[each] for each in obstacles if each in remedies), "")
    if remedy is _OTHER_CA and (origin := config.ca.path or config.ca.origin):
        return f"{origin} has another CA: {remedy}"
    return remedy


def _may_be_mistyped(namespace: str, message: str) -> bool:
    """
    Return whether a refusal is about a machine of a namespace: the server does not tell a user without
    rights there whether it exists.
    """
    lacking = DENIED.search(message)
    return (
        lacking is not None
        and bool(namespace)
        and lacking["namespace"] == namespace
        and any(lacking["kind"] == dialect.workload.plural for dialect in DIALECTS)
    )


def role_to_request(message: str) -> str:
    """
    Return the remedy for a right that the user lacks.

    :return: empty for other messages, and for those that say what the user may do.
    """
    lacking = DENIED.search(message)
    if lacking is None:
        return ""
    takes_over = lacking["verb"] == "takeover"
    if not takes_over and message[lacking.end() :].startswith(": you may "):
        return ""
    remedy = ask_for_role(**lacking.groupdict(default=""))
    return f"to take over, {remedy}" if takes_over else remedy


def ask_for_role(
    user: str, verb: str, group: str, kind: str, subresource: str, namespace: str
) -> str:
    """
    Return the remedy for a right that a user lacks: the smallest role, if there is one, and the
    command that grants it.

    :param kind: the resource, such as ``machines``.
    :param namespace: empty for all.
    """
    from twisted_exec.auth.default_roles import CONSOLE_OBSERVER

    role, command = grant(user, verb, group, kind, subresource, namespace)
    if not role:
        return f"ask an administrator for a role with {verb} on {kind}"
    opens_console = bool(group) and (subresource == "exec" or verb == "drive")
    less = f" ({CONSOLE_OBSERVER} suffices for --read-only)" if opens_console else ""
    return f"{ASK_FOR_ROLE} {role}{less}: {command}"


def grant(
    user: str, verb: str, group: str, kind: str, subresource: str, namespace: str
) -> tuple[str, str]:
    """
    Return the smallest role with a right, or empty, and the command that grants it to a user.

    For the parameters see :func:`ask_for_role`.
    """
    from twisted_exec.auth.default_roles import smallest_role

    role = smallest_role(verb, group, kind, subresource)
    name = re.sub(r"[^a-z0-9]+", "-", f"{user}-{role}".lower()).strip("-")
    create = "rolebinding" if namespace else "clusterrolebinding"
    where = f" -n {namespace}" if namespace else ""
    command = (
        f"kubectl create {create} {name} --clusterrole={role} --user={shlex.quote(user)}{where}"
    )
    return role, command


def power_on(dialect: Dialect, name: str, namespace: str) -> str:
    """Return the command that powers a machine on."""
    patch = """-p '{"spec":{"power":"On"}}'"""
    return f"kubectl patch {dialect.noun} {name} -n {namespace} --type=merge {patch}"


def _unauthorized(message: str, config: ClientConfig | None) -> str:
    why = _SUBJECT.sub("", message)
    if "; " not in why:  # a Space's message has a remedy
        why += "; get new credentials, or check --context and --user"
    if config is None:
        return f"the server does not accept these credentials: {why}"
    return f"{not_accepted(config)}: {why}"


def not_accepted(config: ClientConfig) -> str:
    """Return which credentials, of which file, a server does not accept."""
    source = config.credentials_source
    if not (kind := config.kind_of_credentials):
        return f"{config.server} needs credentials, and {source or 'the kubeconfig'} has none"
    return f"{config.server} does not accept the {kind}{f' of {source}' if source else ''}"


class Colour(Enum):
    """Parameter of the sequence that selects a colour."""

    NONE = ""
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    BOLD_RED = "1;31"
    DIM = "2"


Paint = Callable[[str, Colour], str]


def plain(text: str, colour: Colour) -> str:
    return text


def painted(text: str, colour: Colour) -> str:
    """Return a text in a colour, followed by the reset to the default."""
    return f"\x1b[{colour.value}m{text}\x1b[m" if colour.value else text


def painter(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paint:
    """
    Return the function that colours texts for a stream; texts stay plain without a capable
    terminal, or if ``NO_COLOR`` is not empty.
    """
    wants_colours = not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    return painted if wants_colours and stream.isatty() else plain

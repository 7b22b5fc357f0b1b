"""
What a reader of a log asks for: the query of ``pods/log``, and so of ``machines/log``.

The names are those of Kubernetes' ``PodLogOptions``, and so are the rules and the words
of what is refused: ``k8s.io/kubernetes/pkg/apis/core/validation`` (``ValidatePodLogOptions``), and
``k8s.io/apimachinery/pkg/runtime/conversion.go`` for how a query becomes values.  A machine has one
container, its console, and no earlier one: its log goes on when it is started again.

Whoever passes a query on decodes it, checks it and writes it anew: so nothing passes that nobody
here has understood, and what was not told is not told on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlencode

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.schema import Schema, boolean, integer, moment, string
from twisted_exec.api.status import BadRequest, Invalid
from twisted_exec.api.times import NANOSECONDS, nanoseconds, stamp

CONTAINER = "console"
"""The one container that a machine has."""

STREAMS = ("All", "Stdout")
"""Of what a console prints nothing is known to be an error."""

QUERY: Mapping[str, Schema] = {
    "container": string(f"Empty, or {CONTAINER}."),
    "follow": boolean("Go on with what is printed from now on, until the machine is deleted."),
    "insecureSkipTLSVerifyBackend": boolean("Ignored: the poollet is always verified."),
    "limitBytes": integer("At most so many bytes, the times included.", minimum=1),
    "previous": boolean("Always refused: the log goes on when the machine is started again."),
    "sinceSeconds": integer("Only lines of which something was printed so lately.", minimum=1),
    "sinceTime": moment("Only lines of which something was printed since then."),
    "stream": string("A console has one; both mean the same.", enum=list(STREAMS)),
    "tailLines": integer("Only so many lines of what there is.", minimum=0),
    "timestamps": boolean("Begin each line with the time at which it was begun."),
}
"""What a query may hold."""

POD_STREAMS = ("All", "Stderr", "Stdout")
POD_QUERY: Mapping[str, Schema] = {
    **QUERY,
    "container": string("Which; may be left out when there is one."),
    "insecureSkipTLSVerifyBackend": boolean("Ignored: the kubelet is always verified."),
    "previous": boolean("Of what ran before it was started again."),
    "stream": string("Which of its two, or both.", enum=list(POD_STREAMS)),
}
"""What it may hold for a Pod of a Node."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_LARGEST = 2**63 - 1

Args = Mapping[bytes, list[bytes]]
"""A query, as ``request.args``."""

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class LogOptions:
    """
    How a log is read.  ``None`` is not told.

    :param previous: of the container before the one that runs now.
    :param since_nanoseconds: since the epoch.
    :param tail_lines: only so many lines of what there is; 0 is nothing of it.
    :param limit_bytes: of the answer, 1 or more.
    :param stream: ``All``, ``Stdout`` or ``Stderr``.
    """

    follow: bool = False
    timestamps: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_nanoseconds: int | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: str | None = None

    def query(self) -> bytes:
        """The same for the next hop, in one form; may be empty."""
        told: dict[str, object] = {}
        for name, flag in (
            ("follow", self.follow),
            ("timestamps", self.timestamps),
            ("previous", self.previous),
        ):
            if flag:
                told[name] = "true"
        for name, value in (
            ("sinceSeconds", self.since_seconds),
            ("tailLines", self.tail_lines),
            ("limitBytes", self.limit_bytes),
            ("stream", self.stream),
        ):
            if value is not None:
                told[name] = value
        if self.since_nanoseconds is not None:
            told["sinceTime"] = stamp(self.since_nanoseconds)
        return urlencode(told).encode("ascii")

    def since(self, now_nanoseconds: int) -> int | None:
        """From when on, in nanoseconds since the epoch, if it is told at all."""
        if self.since_seconds is not None:
            return now_nanoseconds - self.since_seconds * NANOSECONDS
        return self.since_nanoseconds


def decode(args: Args) -> LogOptions:
    """
    Read a query.  What nobody defined is ignored, as everywhere in Kubernetes.

    :raises BadRequest: a value cannot be read.
    """
    return LogOptions(
        follow=follows(args),
        timestamps=_flag(args, "timestamps"),
        previous=_flag(args, "previous"),
        since_seconds=_value(args, "sinceSeconds", _integer),
        since_nanoseconds=_time(args, "sinceTime"),
        tail_lines=_value(args, "tailLines", _integer),
        limit_bytes=_value(args, "limitBytes", _integer),
        stream=_text(args, "stream"),
    )


def follows(args: Args) -> bool:
    """Whether what is printed from now on is wanted, too."""
    return _flag(args, "follow")


def check(options: LogOptions, name: str, streams: Sequence[str]) -> None:
    """
    :param name: of what the log is of, for messages.
    :param streams: which there are.
    :raises Invalid: the values make no sense.
    """
    causes = _causes(options, streams)
    if causes:
        raise Invalid("PodLogOptions", name, causes, group="")


def parse(args: Args, machine: str) -> LogOptions:
    """
    Read and check a query about a machine.

    :param machine: its name, for messages.
    :raises BadRequest: a value cannot be read, or asks for what no machine has.
    :raises Invalid: the values make no sense.
    """
    options = decode(args)
    check(options, machine, STREAMS)
    container = _text(args, "container") or CONTAINER
    if container != CONTAINER:
        told = fields.shown(container)[1:-1]
        raise BadRequest(f"container {told} is not valid for machine {machine}: it has {CONTAINER}")
    if options.previous:
        raise BadRequest(
            f'previous terminated container "{CONTAINER}" in machine "{machine}" not found: '
            "the log of a machine goes on when it is started again"
        )
    return replace(options, stream=None)


def parse_of_pod(args: Args, pod: str) -> LogOptions:
    """
    As :func:`parse`, about a Pod of a Node; which container is not looked at.

    :param pod: its name, for messages.
    """
    options = decode(args)
    check(options, pod, POD_STREAMS)
    if options.stream not in (None, "All") and options.tail_lines is not None:
        told = "`tailLines` and specific `stream` are mutually exclusive for now"
        raise Invalid("PodLogOptions", pod, [fields.forbidden("tailLines", told)], group="")
    return options


def _causes(options: LogOptions, streams: Sequence[str]) -> list[Cause]:
    causes: list[Cause] = []
    if options.tail_lines is not None and options.tail_lines < 0:
        causes.append(
            fields.invalid("tailLines", options.tail_lines, "must be greater than or equal to 0")
        )
    if options.limit_bytes is not None and options.limit_bytes < 1:
        causes.append(fields.invalid("limitBytes", options.limit_bytes, "must be greater than 0"))
    if options.since_seconds is not None and options.since_nanoseconds is not None:
        causes.append(
            fields.forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")
        )
    elif options.since_seconds is not None and options.since_seconds < 1:
        causes.append(
            fields.invalid("sinceSeconds", options.since_seconds, "must be greater than 0")
        )
    if options.stream is not None and options.stream not in streams:
        causes.append(fields.not_supported("stream", options.stream, streams))
    return causes


def _text(args: Args, name: str) -> str | None:
    values = args.get(name.encode("ascii"))
    return values[0].decode("utf-8", "replace") if values else None


def _flag(args: Args, name: str) -> bool:
    """Go's conversion: false are no value at all, ``false`` and ``0``."""
    text = _text(args, name)
    return text is not None and text.lower() not in ("false", "0")


def _value(args: Args, name: str, read: Callable[[str], _Value]) -> _Value | None:
    text = _text(args, name)
    return None if text is None else read(text)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise BadRequest(f"strconv.ParseInt: parsing {fields.shown(text)}: invalid syntax")
    if not -_LARGEST - 1 <= int(text) <= _LARGEST:
        raise BadRequest(f"strconv.ParseInt: parsing {fields.shown(text)}: value out of range")
    return int(text)


def _time(args: Args, name: str) -> int | None:
    text = _text(args, name)
    if not text or text == "null":  # as metav1.Time.UnmarshalQueryParameter has it
        return None
    try:
        return nanoseconds(text)
    except ValueError as problem:
        raise BadRequest(str(problem)) from None

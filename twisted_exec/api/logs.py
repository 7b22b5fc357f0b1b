"""
Options of a log request: the query of ``pods/log``, and of ``machines/log``.

Names, rules and error messages are those of Kubernetes' ``PodLogOptions``
(``k8s.io/kubernetes/pkg/apis/core/validation``). A hop decodes and checks the query, and encodes it
anew, so it only forwards options that it understands.
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
"""Name of a machine's only container."""

STREAMS = ("All", "Stdout")
"""The streams of a machine's log: a console does not tell errors from other output."""

LARGEST_STATE = 2**32 - 1
_EPOCH = "^[0-9a-f]{16}$"

_KUBERNETES: Mapping[str, Schema] = {
    "container": string(f"Container to return the log of: empty or {CONTAINER}."),
    "follow": boolean("Follow the log until the machine is deleted."),
    "insecureSkipTLSVerifyBackend": boolean(
        "Ignored: the poollet's certificate is always verified."
    ),
    "limitBytes": integer("Maximum number of bytes to return, including timestamps.", minimum=1),
    "previous": boolean("Return the log of the boot before the newest."),
    "sinceSeconds": integer(
        "Only return lines with output within this number of seconds.", minimum=1
    ),
    "sinceTime": moment("Only return lines with output since this time."),
    "stream": string(
        "Stream to return. A console has a single stream, so both values mean the same.",
        enum=list(STREAMS),
    ),
    "tailLines": integer("Number of existing lines to return, counted from the end.", minimum=0),
    "timestamps": boolean("Start each line with its RFC 3339 timestamp."),
}
QUERY: Mapping[str, Schema] = {
    **_KUBERNETES,
    "boot": integer(
        "Boot to return the log of: 0 is the newest, -1 the boot before it, and a positive number "
        "is the number of a boot."
    ),
    "epoch": string(
        "Epoch of fromOffset and toOffset. If the log has another epoch, it begins with a notice.",
        pattern=_EPOCH,
    ),
    "frames": boolean("Return frames with offsets, by which a client can continue the log."),
    "fromOffset": integer("Offset of the first byte to return.", minimum=0),
    "plain": boolean("Remove escape sequences and control characters."),
    "state": integer(
        "State of the last frame, to continue the log behind it.", minimum=0, maximum=LARGEST_STATE
    ),
    "toOffset": integer("Offset of the byte behind the last to return.", minimum=0),
    "untilTime": moment("Only return lines that ended before this time."),
}
"""Query parameters for a machine."""

POD_STREAMS = ("All", "Stderr", "Stdout")
POD_QUERY: Mapping[str, Schema] = {
    **_KUBERNETES,
    "container": string("Container to return the log of. May be empty if the Pod has only one."),
    "insecureSkipTLSVerifyBackend": boolean(
        "Ignored: the kubelet's certificate is always verified."
    ),
    "previous": boolean("Return the log of the previous, terminated container."),
    "stream": string("Stream to return: one of the two, or both.", enum=list(POD_STREAMS)),
}
"""Query parameters for a Pod on a Node."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_LARGEST = 2**63 - 1

Args = Mapping[bytes, list[bytes]]
"""A query in the form of ``request.args``."""

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class LogOptions:
    """
    Options of a log request. ``None`` means unset. The options from ``boot`` on are for machines
    only.

    :param tail_lines: limit for existing lines; 0 for none of them.
    :param limit_bytes: limit for the answer, without the heads of frames.
    :param boot: 0 or a negative number counts from the newest; a positive number is a boot's own.
    :param epoch: the journal that the offsets belong to.
    :param frames: return frames, see :mod:`twisted_exec.wire.log_frames`.
    :param state: the state of the frame before ``from_offset``.
    :param plain: remove escape sequences and control characters.
    """

    follow: bool = False
    timestamps: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_nanoseconds: int | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: str | None = None
    boot: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    until_nanoseconds: int | None = None
    epoch: str | None = None
    plain: bool = False
    frames: bool = False
    state: int | None = None

    def query(self) -> bytes:
        """Return the query for the next hop."""
        values: dict[str, object] = {}
        for name, flag in (
            ("follow", self.follow),
            ("timestamps", self.timestamps),
            ("previous", self.previous),
            ("plain", self.plain),
            ("frames", self.frames),
        ):
            if flag:
                values[name] = "true"
        for name, value in (
            ("sinceSeconds", self.since_seconds),
            ("tailLines", self.tail_lines),
            ("limitBytes", self.limit_bytes),
            ("stream", self.stream),
            ("boot", self.boot),
            ("fromOffset", self.from_offset),
            ("toOffset", self.to_offset),
            ("epoch", self.epoch),
            ("state", self.state),
        ):
            if value is not None:
                values[name] = value
        for name, nanoseconds_since_epoch in (
            ("sinceTime", self.since_nanoseconds),
            ("untilTime", self.until_nanoseconds),
        ):
            if nanoseconds_since_epoch is not None:
                values[name] = stamp(nanoseconds_since_epoch)
        return urlencode(values).encode("ascii")

    def since(self, now_nanoseconds: int) -> int | None:
        """Return the start in nanoseconds since the epoch, or ``None``."""
        if self.since_seconds is not None:
            return now_nanoseconds - self.since_seconds * NANOSECONDS
        return self.since_nanoseconds


def decode(args: Args) -> LogOptions:
    """
    Decode the options of Kubernetes, without unknown parameters.

    :raises BadRequest: a value is malformed.
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
    """Return whether to continue with future output."""
    return _flag(args, "follow")


def check(options: LogOptions, name: str, streams: Sequence[str]) -> None:
    """
    Check the values of options.

    :param name: the object's name, for messages.
    :raises Invalid: the values are not valid.
    """
    causes = _causes(options, streams)
    if causes:
        raise Invalid("PodLogOptions", name, causes, group="")


def parse(args: Args, machine: str) -> LogOptions:
    """
    Decode and check a query for a machine.

    :raises BadRequest: a value is malformed, or requires something that no machine has.
    :raises Invalid: a value is out of range, or two options exclude each other.
    """
    options = replace(
        decode(args),
        boot=_value(args, "boot", _integer),
        from_offset=_value(args, "fromOffset", _integer),
        to_offset=_value(args, "toOffset", _integer),
        until_nanoseconds=_time(args, "untilTime"),
        epoch=_text(args, "epoch"),
        plain=_flag(args, "plain"),
        frames=_flag(args, "frames"),
        state=_value(args, "state", _integer),
    )
    if causes := [*_causes(options, STREAMS), *_causes_of_range(options)]:
        raise Invalid("PodLogOptions", machine, causes, group="")
    container = _text(args, "container") or CONTAINER
    if container != CONTAINER:
        name = fields.shown(container)[1:-1]
        raise BadRequest(f"container {name} is not valid for machine {machine}: it has {CONTAINER}")
    return replace(options, stream=None)


def parse_of_pod(args: Args, pod: str) -> LogOptions:
    """
    Decode and check a query for a Pod on a Node, except the container; errors as :func:`parse`.
    """
    options = decode(args)
    check(options, pod, POD_STREAMS)
    if options.stream not in (None, "All") and options.tail_lines is not None:
        detail = "`tailLines` and specific `stream` are mutually exclusive for now"
        raise Invalid("PodLogOptions", pod, [fields.forbidden("tailLines", detail)], group="")
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


def _causes_of_range(options: LogOptions) -> list[Cause]:
    causes: list[Cause] = []
    for name, value in (("fromOffset", options.from_offset), ("toOffset", options.to_offset)):
        if value is not None and value < 0:
            causes.append(fields.invalid(name, value, "must be greater than or equal to 0"))
    if options.state is not None and not 0 <= options.state <= LARGEST_STATE:
        causes.append(fields.invalid("state", options.state, "must be the state of a frame"))
    if options.epoch is not None and not re.fullmatch(_EPOCH, options.epoch):
        causes.append(fields.invalid("epoch", options.epoch, "must be 16 hexadecimal digits"))
    first, last = options.from_offset, options.to_offset
    if first is not None and last is not None and 0 <= last < first:
        causes.append(fields.invalid("toOffset", last, "must not be less than fromOffset"))
    since, until = options.since_nanoseconds, options.until_nanoseconds
    if since is not None and until is not None and until < since:
        causes.append(fields.invalid("untilTime", stamp(until), "must not be before sinceTime"))
    exclusive = (
        (
            "previous",
            options.previous and options.boot is not None,
            "at most one of `boot` or `previous` may be specified",
        ),
        (
            "fromOffset",
            (options.previous or options.boot is not None) and (first, last) != (None, None),
            "offsets and a boot are mutually exclusive",
        ),
        (
            "follow",
            options.follow and (until is not None or last is not None),
            "a log that is followed has no end: omit `untilTime` and `toOffset`",
        ),
    )
    causes += [fields.forbidden(name, detail) for name, is_given, detail in exclusive if is_given]
    return causes


def _text(args: Args, name: str) -> str | None:
    values = args.get(name.encode("ascii"))
    return values[0].decode("utf-8", "replace") if values else None


def _flag(args: Args, name: str) -> bool:
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
    if not text or text == "null":  # as metav1.Time.UnmarshalQueryParameter does
        return None
    try:
        return nanoseconds(text)
    except ValueError as problem:
        raise BadRequest(str(problem)) from None

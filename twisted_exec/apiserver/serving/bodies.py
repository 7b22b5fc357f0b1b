"""
Bodies of requests, and the options in them.
"""

from __future__ import annotations

from twisted_exec.api import bodies, fields, patch
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import BadRequest, Invalid, UnsupportedMediaType, one_line
from twisted_exec.apiserver.serving.costs import cost_of_body
from twisted_exec.apiserver.serving.fairness import FairQueue, Work
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.requests import APIRequest
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.site import Request

_SHOWN_BYTES = 30
_POLICIES = ("Background", "Foreground", "Orphan")
_DELETE_TYPES = {
    "gracePeriodSeconds": "integer",
    "orphanDependents": "boolean",
    "preconditions": "object",
    "propagationPolicy": "string",
    "dryRun": "array",
}


def content_type(request: Request) -> str:
    """The media type of the request's body, as sent."""
    return request.requestHeaders.getRawHeaders(b"content-type", [b""])[0].decode("latin-1")


def work_of(context: RequestContext, queue: FairQueue) -> Work:
    """Return the work of a request, which costs what its body costs."""
    request = context.request
    cost = cost_of_body(content_type(request), request.content.getvalue())
    return Work(queue, context.user, cost)


async def read_body(
    request: Request,
    kind: Kind,
    options: WriteOptions,
    work: Work,
    limit: bodies.Limit = bodies.REVIEW,
) -> Object:
    """
    Decode the object in a request's body.

    :param options: receives the duplicate keys.
    :param limit: by default that of requests that store nothing.
    :raises BadRequest: it cannot be decoded.
    :raises RequestEntityTooLarge: it exceeds the limit.
    :raises TooManyRequests: too many large bodies wait.
    :raises UnsupportedMediaType: its media type is not supported.
    """
    raw = request.content.getvalue()
    return await work.run(_decode_object, content_type(request), raw, kind, options, limit)


def _decode_object(
    media_type: str, raw: bytes, kind: Kind, options: WriteOptions, limit: bodies.Limit
) -> Object:
    try:
        return bodies.decode(media_type, raw, options.duplicates, limit)
    except bodies.BodyError as error:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): "
            f"{error.message} ({_summary(raw)})"
        ) from None


def _summary(raw: bytes) -> str:
    start = raw[:_SHOWN_BYTES]
    text = start.decode("utf-8", "replace") if raw.startswith(b"{") else start.hex()
    return one_line(text) + (" ..." if len(raw) > _SHOWN_BYTES else "") if raw else "<empty>"


def patch_type(request: Request) -> str:
    """
    Return the media type of a patch.

    :raises UnsupportedMediaType: it is not that of a patch.
    """
    media_type = content_type(request).partition(";")[0].strip().lower()
    if media_type not in patch.TYPES:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(patch.TYPES)}"
        )
    return media_type


async def delete_options(request: APIRequest, work: Work) -> Object:
    """
    Return the options of a delete, from the request's body or its query.

    :raises BadRequest: they are no ``DeleteOptions``.
    :raises Invalid: the propagation policy is not valid.
    """
    raw = request.content.getvalue()
    # The query counts only without a body.  Go writes null for options that are not set.
    kind, is_empty = content_type(request), raw.strip() in (b"", b"null")
    if is_empty:
        submitted = _from_query(request)
    else:
        submitted = await work.run(bodies.decode, kind, raw, None, bodies.REVIEW)
    if submitted.get("kind", "DeleteOptions") != "DeleteOptions":
        raise BadRequest(
            f"the body of a delete is no {fields.shown(submitted['kind'])}: DeleteOptions"
        )
    _check_types(submitted)
    if causes := _propagation_causes(submitted):
        raise Invalid("DeleteOptions", "", causes, "meta.k8s.io")
    return submitted


def _check_types(submitted: Object) -> None:
    values = [(key, submitted.get(key), kind) for key, kind in _DELETE_TYPES.items()]
    preconditions = submitted.get("preconditions")
    if isinstance(preconditions, dict):
        values += [
            (f"preconditions.{key}", value, "string") for key, value in preconditions.items()
        ]
    for key, value, kind in values:
        if value is not None and fields.json_type(value) != kind:
            raise BadRequest(
                'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: '
                f"{key} in body must be of type {kind}: {fields.shown(fields.json_type(value))}"
            )


def _from_query(request: APIRequest) -> Object:
    query = request.query
    submitted: Object = {}
    if query.text("gracePeriodSeconds"):
        submitted["gracePeriodSeconds"] = query.number("gracePeriodSeconds")
    if query.text("propagationPolicy"):
        submitted["propagationPolicy"] = query.text("propagationPolicy")
    if query.text("orphanDependents"):
        submitted["orphanDependents"] = query.flag("orphanDependents")
    return submitted


def _propagation_causes(submitted: Object) -> list[Cause]:
    policy = submitted.get("propagationPolicy")
    if policy is None:
        return []
    if submitted.get("orphanDependents") is not None:
        both = "orphanDependents and deletionPropagation cannot be both set"
        return [fields.invalid("propagationPolicy", policy, both)]
    if policy not in _POLICIES:
        return [fields.not_supported("propagationPolicy", policy, [*_POLICIES, "nil"])]
    return []

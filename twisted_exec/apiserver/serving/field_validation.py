"""
``fieldValidation``: what becomes of fields that a kind does not know, or that a body has twice.

With ``Ignore`` nothing, with ``Warn`` they are told beside the answer, with ``Strict`` they are
refused, in the words of ``k8s.io/apiserver/pkg/endpoints/handlers``.
"""

from __future__ import annotations

from twisted_exec.api import strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.serving.query import WriteOptions


def check_body(kind: Kind, body: Object, options: WriteOptions) -> None:
    """
    A whole object, as it came.

    :raises BadRequest: it is not as strictly as wanted what ``kind`` knows.
    """
    told = _noted(kind, body, options)
    if told and options.field_validation == "Strict":
        resource = kind.resource
        raise BadRequest(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: strict decoding error: {told}"
        )


def check_patched(kind: Kind, body: Object, options: WriteOptions) -> None:
    """
    What a patch made of an object.

    :raises Invalid: as :func:`check_body`.
    """
    told = _noted(kind, body, options)
    if told and options.field_validation == "Strict":
        raise strategy.refused_patch(kind, body, f"strict decoding error: {told}")


def check_applied(options: WriteOptions) -> None:
    """
    A configuration that is applied.

    What the schema does not know is no configuration at all, and was refused before.

    :raises BadRequest: it says something twice.
    """
    told = _noted(None, {}, options)
    if told and options.field_validation == "Strict":
        raise BadRequest(f"error strict decoding YAML: {told}")


def _noted(kind: Kind | None, body: Object, options: WriteOptions) -> str:
    """What is said twice or unknown: told as warnings, and to be refused if so wanted."""
    if options.field_validation == "Ignore":
        return ""
    told = [f'duplicate field "{path}"' for path in options.duplicates]
    if kind is not None:
        told += [f'unknown field "{path}"' for path in strategy.unknown_fields(kind, body)]
    options.warnings[:] = told
    return ", ".join(told)

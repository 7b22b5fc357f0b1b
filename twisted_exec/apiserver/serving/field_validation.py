"""
Validation of the fields in a body: unknown and duplicate ones, as ``fieldValidation`` wants it.
"""

from __future__ import annotations

from twisted_exec.api import strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.serving.query import WriteOptions


def check_body(kind: Kind, body: Object, options: WriteOptions) -> None:
    """
    Check a complete object.

    :raises BadRequest: ``Strict``, and it has unknown or duplicate fields.
    """
    problems = _note_problems(kind, body, options)
    if problems and options.field_validation == "Strict":
        resource = kind.resource
        raise BadRequest(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: strict decoding error: {problems}"
        )


def check_patched(kind: Kind, body: Object, options: WriteOptions) -> None:
    """Check an object that results from a patch."""
    problems = _note_problems(kind, body, options)
    if problems and options.field_validation == "Strict":
        raise strategy.refused_patch(kind, body, f"strict decoding error: {problems}")


def check_applied(options: WriteOptions) -> None:
    """
    Check an apply configuration.

    :raises BadRequest: ``Strict``, and it has duplicate fields.
    """
    problems = _note_problems(None, {}, options)
    if problems and options.field_validation == "Strict":
        raise BadRequest(f"error strict decoding YAML: {problems}")


def _note_problems(kind: Kind | None, body: Object, options: WriteOptions) -> str:
    if options.field_validation == "Ignore":
        return ""
    problems = [f'duplicate field "{path}"' for path in options.duplicates]
    if kind is not None:
        problems += [f'unknown field "{path}"' for path in strategy.unknown_fields(kind, body)]
    options.warnings[:] = problems
    return ", ".join(problems)

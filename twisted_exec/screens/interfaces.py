"""The interface of the processes that render screens, and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from zope.interface import Interface

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.job_messages import encode

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred


@dataclass(frozen=True)
class Resize:
    """
    A change of the terminal's size.

    :param position: the number of bytes of a job's output before it.
    """

    position: int
    columns: int
    rows: int


@dataclass(frozen=True)
class Job:
    """
    The work of one process for one screen.

    :param key_frame: output before ``output``, see :meth:`.AvtScreen.key_frame`.
    :param facts: further facts for the forms that are JSON.
    :param shown_size: columns and rows of the terminal that shows the screen; ``None`` for those at
        the end.
    :param output: bytes of the machine.
    :param columns: the size at the beginning; limits apply.
    :param resizes: in order.
    :param form: a :class:`~twisted_exec.api.screens.ScreenForm`.
    """

    columns: int
    rows: int
    key_frame: str
    output: bytes
    resizes: Sequence[Resize]
    form: str
    facts: dict[str, object] = field(default_factory=dict)
    shown_size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Rendered:
    """
    The result of a job.

    :param body: the screen in the job's form.
    :param key_frame: the state after the output, without its last ``pending`` bytes.
    :param pending: bytes of an incomplete UTF-8 character at the end of the output.
    :param columns: the size at the end.
    """

    body: bytes
    key_frame: str
    pending: int
    columns: int
    rows: int


class CannotRender(ServiceUnavailable):
    """A process has failed with this job, and would fail again."""


class IRenderer(Interface):
    """Renders screens, in processes with limits."""

    def render(job: Job, key: str) -> Deferred[Rendered]:
        """
        Render a screen.

        :param key: names the machine. Machines take turns.
        :return: fires with a :class:`Rendered`. Cancelling gives the turn to another job, unless
            the job has begun. Fails with :class:`~twisted_exec.api.status.NotImplementedByBackend`
            if there is no emulator, with :class:`CannotRender` if a process cannot do the job, for
            example because it takes too long, and with
            :class:`~twisted_exec.api.status.ServiceUnavailable` if too many jobs wait.
        """


def encode_job(job: Job) -> bytes:
    """Return the message with a job."""
    head = {
        "columns": job.columns,
        "rows": job.rows,
        "key_frame": job.key_frame,
        "resizes": [asdict(each) for each in job.resizes],
        "form": job.form,
        "facts": job.facts,
        "shown_size": job.shown_size,
    }
    return encode(head, job.output)


def job_of(head: dict[str, Any], output: bytes) -> Job:
    """Return the job of a message."""
    resizes = [Resize(**each) for each in head.pop("resizes")]
    size = head.pop("shown_size")
    shown_size = None if size is None else (size[0], size[1])
    return Job(**head, resizes=resizes, output=output, shown_size=shown_size)


def encode_rendered(rendered: Rendered) -> bytes:
    """Return the message with a result."""
    head = asdict(rendered)
    del head["body"]
    return encode(head, rendered.body)


def rendered_of(head: dict[str, Any], body: bytes) -> Rendered:
    """
    Return the result of a message.

    :raises ValueError: the fields are not those of a result.
    """
    try:
        return Rendered(body=body, **head)
    except TypeError as problem:
        raise ValueError(str(problem)) from None

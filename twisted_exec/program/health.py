"""
Health and readiness probes.

``/healthz`` says that the process answers; ``/readyz`` also checks what it depends on. ``/readyz``
needs no authentication, so concurrent requests share one round of probes, and the *reason* of a
failure goes into the answer only for clients on the program's host.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError, gatherResults, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import message_of, one_line
from twisted_exec.program.service import SUMMARY

Probe = Callable[[], "Deferred[object] | Coroutine[Any, Any, object] | None"]
"""
Raises, or returns a Deferred or coroutine that fails, if its subject is not healthy.

A ``str`` as result is a limit: what does not work although the probe passes, in words for all users.
"""


@dataclass(frozen=True)
class ProbeResult:
    """
    Result of one probe.

    :param error: why it failed; ``None`` when it passed.
    :param limit: what does not work although it passed; may be empty.
    """

    name: str
    error: str | None = None
    limit: str = ""


Results = list[ProbeResult]
"""Results of the probes, in the order added."""


_FRESH_SECONDS = 1.0


class Health:
    """The probes of one program."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, *, probe_seconds: float = 5.0) -> None:
        self._clock, self._probe_seconds = clock, probe_seconds
        self._probes: list[tuple[str, Probe]] = []
        self._waiting: list[Deferred[Results]] | None = None
        self._known: dict[str, str] = {}
        self._results: Results = []
        self._fresh_until = 0.0

    def add(self, name: str, probe: Probe) -> None:
        """
        Add a probe.

        :param name: a short word for the listing, such as ``storage``.
        """
        self._probes.append((name, probe))

    @property
    def names(self) -> list[str]:
        """The probes, in the order added."""
        return [name for name, _ in self._probes]

    def check(self) -> Deferred[Results]:
        """Run the probes; fires with the results within ``probe_seconds``."""
        answer: Deferred[Results] = Deferred()
        if self._waiting is not None:
            self._waiting.append(answer)
            return answer
        self._waiting = [answer]
        round_ = gatherResults([self._ask(name, probe) for name, probe in self._probes])
        round_.addCallback(self._tell)
        return answer

    async def ready(self, *, with_reasons: bool = False) -> tuple[bool, str]:
        """
        Return whether the probes passed, and the listing (:func:`listing`); cached for a second.
        """
        if self._clock.seconds() >= self._fresh_until:
            self._results = await self.check()
            self._fresh_until = self._clock.seconds() + _FRESH_SECONDS
        return is_ready(self._results), listing(self._results, with_reasons=with_reasons)

    def _tell(self, results: Results) -> None:
        waiting, self._waiting = self._waiting or [], None
        for answer in waiting:
            if not answer.called:
                answer.callback(list(results))

    def _ask(self, name: str, probe: Probe) -> Deferred[ProbeResult]:
        def passed(result: object) -> ProbeResult:
            self._tell_log(name, "")
            return ProbeResult(name, limit=result if isinstance(result, str) else "")

        def failed(failure: Failure) -> ProbeResult:
            message = message_of(failure.value)
            if failure.check(TimeoutError):
                message = f"no answer within {self._probe_seconds:g} seconds"
            self._tell_log(name, message)
            return ProbeResult(name, message)

        outcome: Deferred[object] = maybeDeferred(probe)
        outcome.addTimeout(self._probe_seconds, self._clock)
        return outcome.addCallbacks(passed, failed)

    def _tell_log(self, name: str, problem: str) -> None:
        """Log changes only, because requests could fill the log."""
        previous, self._known[name] = self._known.get(name, ""), problem
        if problem and problem != previous:
            self._log.warn("probe {name} failed: {problem}", name=name, problem=problem)
        elif previous and not problem:
            self._log.info("probe {name} passes again", name=name, **{SUMMARY: True})


def is_ready(results: Results) -> bool:
    """Return whether there is at least one probe and none failed."""
    return bool(results) and all(each.error is None for each in results)


def listing(
    results: Results,
    check: str = "readyz",
    excluded: Sequence[str] = (),
    *,
    with_reasons: bool = False,
) -> str:
    """
    Return the verbose answer, in the format of Kubernetes.

    :param check: the name of the path: ``readyz``, ``healthz`` or ``livez``.
    :param excluded: names of probes to ignore.
    :param with_reasons: include the reasons of failed probes, which may name paths and addresses.
    """
    lines = [_line(each, each.name in excluded, with_reasons) for each in results]
    names = [each.name for each in results]
    if unknown := [f'"{one_line(name)}"' for name in excluded if name not in names]:
        lines.append(
            f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}"
        )
    verdict = (
        "passed" if is_ready([each for each in results if each.name not in excluded]) else "failed"
    )
    return "\n".join([*lines, f"{check} check {verdict}", ""])


def _line(result: ProbeResult, excluded: bool, with_reasons: bool) -> str:
    if excluded:
        return f"[+]{result.name} excluded: ok"
    if result.error is None:
        limit = f", but {one_line(result.limit)}" if result.limit else ""
        return f"[+]{result.name} ok{limit}"
    return (
        f"[-]{result.name} failed: {one_line(result.error) if with_reasons else 'reason withheld'}"
    )

"""
Recordings that sessions need, by the ConsolePolicies of a machine or by the wish of a user.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from twisted_exec.api.kinds.policies.consolepolicies import RECORDED_INPUT, REQUIRED
from twisted_exec.apiserver.policies.evaluation import Policy
from twisted_exec.wire.session_terms import parse_recording


@dataclass(frozen=True)
class Demand:
    """
    The recording that a session needs.

    :param input: an element of :data:`RECORDED_INPUT`.
    :param is_required: there is no session, and no input, without it.
    :param retention_days: ``None`` for the default of a recording.
    :param policies: the names of the policies that demand it.
    """

    input: str
    is_required: bool
    retention_days: int | None = None
    policies: tuple[str, ...] = ()

    def stricter(self, other: Demand) -> Demand:
        """Return a demand that satisfies both."""
        days = [each for each in (self.retention_days, other.retention_days) if each is not None]
        return Demand(
            max(self.input, other.input, key=RECORDED_INPUT.index),
            self.is_required or other.is_required,
            max(days, default=None),
            tuple(sorted({*self.policies, *other.policies})),
        )

    def is_met_by(self, recording: str) -> bool:
        """
        Return whether a recording has as much input as this demand.

        :param recording: see :attr:`~twisted_exec.wire.session_terms.Terms.recording`.
        """
        if not recording:
            return False
        _, recorded = parse_recording(recording)
        return RECORDED_INPUT.index(recorded) >= RECORDED_INPUT.index(self.input)

    def rule(self, namespace: str) -> str:
        """Return the start of a message: the policies, and that they require a recording."""
        if not self.policies:
            return "you asked for a recording of this console"
        names = ", ".join(f"{namespace}/{each}" for each in self.policies)
        if len(self.policies) == 1:
            return f"ConsolePolicy {names} requires a recording of this console"
        return f"ConsolePolicies {names} require a recording of this console"


def demand_of(policies: Iterable[Policy]) -> Demand | None:
    """Return the strictest demand of the policies of a machine; ``None`` if they have none."""
    demands = [
        Demand(
            recording["input"],
            recording["mode"] == REQUIRED,
            recording["retentionDays"],
            (policy.name,),
        )
        for policy in policies
        if (recording := policy.spec.get("recording")) is not None
    ]
    return reduce(Demand.stricter, demands) if demands else None

"""
The conditions of ConsolePolicies for one session.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twisted_exec.api.kinds import Object
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.interfaces import Applicant
from twisted_exec.auth.interfaces import User
from twisted_exec.wire.session_terms import Right, Terms


@dataclass(frozen=True)
class SessionConditions:
    """
    The policies that apply to one session:
    :class:`~twisted_exec.auth.console_rights.SessionRequirements`.

    :param machine: as it was when the session was opened.
    :param recording: of the session; empty if it began without, ``None`` if it shows nothing to
        record.
    """

    policies: ConsolePolicies
    applicant: Applicant
    machine: Object
    recording: str | None = None

    def is_strict(self, user: User) -> bool:
        strict: bool = self.policies.is_strict(self.machine, user)
        return strict

    def terms(self, user: User, right: Right) -> Terms:
        applicant = replace(self.applicant, user=user)
        terms: Terms = self.policies.review(applicant, self.machine["metadata"]["uid"], right)
        if self.recording is None:
            return terms
        demand = self.policies.recording_demand(self.machine, user, self.applicant.wanted)
        if demand is not None and demand.is_required and not demand.is_met_by(self.recording):
            namespace = self.machine["metadata"]["namespace"]
            why = (
                f"{demand.rule(namespace)} (input: {demand.input}), and this session began without the "
                "policy's recording: a new session has it"
            )
            raise because(Obstacle.NOT_RECORDED, Forbidden(why))
        return replace(terms, recording=self.recording)

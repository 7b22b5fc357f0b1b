"""
The ConsolePolicies of one session, for its reviews.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.interfaces import Applicant, IConsolePolicies
from twisted_exec.wire.session_terms import Right, Terms


@dataclass(frozen=True)
class SessionConditions:
    """
    The policies that apply to one session: :class:`~twisted_exec.auth.console_rights.Conditions`.

    :param machine: as it was when the session was opened; each review uses its present labels.
    """

    policies: IConsolePolicies
    applicant: Applicant
    machine: Object

    def is_strict(self) -> bool:
        """As :meth:`~twisted_exec.auth.console_rights.Conditions.is_strict`."""
        strict: bool = self.policies.is_strict(self.machine)
        return strict

    def terms(self, right: Right) -> Terms:
        """As :meth:`~twisted_exec.auth.console_rights.Conditions.terms`."""
        terms: Terms = self.policies.review(self.applicant, self.machine["metadata"]["uid"], right)
        return terms

"""Options of programs that serve sessions."""

from __future__ import annotations

from collections.abc import Sequence

from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.shared import ALLOWED_ORIGIN
from twisted_exec.program.options.values import number_of_sessions
from twisted_exec.program.session_limits import SessionLimits


class SessionOptions(ProgramOptions):
    """
    Options of a program that serves sessions.

    :cvar users_share: by default one user may have one session in so many.
    """

    group = "Sessions"
    descriptors_per_session = 2
    users_share = 4

    optParameters = [
        [
            "max-sessions",
            None,
            None,
            "Limit of concurrent sessions; default: as many as file descriptors allow, up to 10000.",
            number_of_sessions,
        ],
        [
            "max-sessions-per-user",
            None,
            None,
            "Limit of one user's sessions; default: a part of --max-sessions.",
            number_of_sessions,
        ],
    ]

    def session_limits(self) -> SessionLimits:
        """
        Return the limits for the present limit of descriptors.

        :raises ValueError: so many sessions do not fit.
        """
        try:
            return SessionLimits.fitting(
                self["max-sessions"],
                self["max-sessions-per-user"],
                per_session=self.descriptors_per_session,
                users_share=self.users_share,
            )
        except ValueError as problem:
            raise ValueError(f"--max-sessions: {problem}") from None


class BrowserOptions(SessionOptions):
    """Options of a program that serves browsers."""

    group = "Sessions"
    more: Sequence[ProgramOption] = (ALLOWED_ORIGIN,)

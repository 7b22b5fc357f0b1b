"""Options of programs that serve sessions and may be replaced by a successor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from twisted_exec.program.handover.interfaces import HANDOVER_SECONDS, LINGER_SECONDS
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.shared import ALLOWED_ORIGIN
from twisted_exec.program.options.values import number_of_sessions, seconds_between
from twisted_exec.program.session_limits import SessionLimits

_WEEK_SECONDS = 7 * 24 * 3600


class ReplaceableOptions(ProgramOptions):
    """Options of a program that a successor may replace."""

    group = "Hand-over"

    optParameters = [
        [
            "handover-seconds",
            None,
            HANDOVER_SECONDS,
            "Seconds that a successor that is not ready may do nothing.",
            partial(seconds_between, least=1, most=3600),
        ],
    ]


class SessionOptions(ReplaceableOptions):
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
        [
            "linger",
            None,
            LINGER_SECONDS,
            "Seconds that sessions may take to end in a process that a successor has replaced "
            "(SIGUSR2).",
            partial(seconds_between, least=0, most=_WEEK_SECONDS),
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

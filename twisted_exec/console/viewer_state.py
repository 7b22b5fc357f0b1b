"""
Viewers that go on in another process: their state, as a record and as JSON values.

The state of a viewer is what its user could notice the loss of: the role, the terms, the place in the
output, and notices that are not sent yet.  The console is suspended while its viewers are exported,
so no input is settled and no output is sent afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from twisted_exec.streaming.interfaces import Ending, Role, TerminalSize
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.session_terms import Terms, parse_terms
from twisted_exec.wire.stream_options import StreamOptions

from .input import InputState
from .output import OutputState

if TYPE_CHECKING:
    from .shared_console import SharedConsole
    from .viewer import Viewer


@dataclass(frozen=True)
class ViewerState:
    """
    A viewer for another process.

    :param session: the id of its newest stream.
    :param joined_as: the id of its first stream.
    :param is_role_doubtful: the user may not have the notice about the role.
    :param epoch: names the journal of the console.
    :param waits_after: the ending of the line whose successor the session waits for; ``None`` if it
        does not wait.
    """

    session: str
    joined_as: str
    user: str
    terms: Terms
    options: StreamOptions
    role: Role
    is_role_doubtful: bool
    is_away: bool
    size: TerminalSize | None
    epoch: str
    output: OutputState
    input: InputState
    waits_after: Ending | None


def export_viewer(viewer: Viewer) -> dict[str, Any] | None:
    """Return the state of a viewer; ``None`` if it has not joined, or its session is ending."""
    state = viewer.state
    if state is None:
        return None
    output, input, size = state.output, state.input, state.size
    discarded, line = input.discarded, state.waits_after
    return {
        "session": state.session,
        "joinedAs": state.joined_as,
        "user": state.user,
        "terms": state.terms.text(),
        "options": state.options.query().decode("ascii"),
        "role": state.role.name.lower(),
        "isRoleDoubtful": state.is_role_doubtful,
        "isAway": state.is_away,
        "size": None if size is None else [size.columns, size.rows],
        "epoch": state.epoch,
        "offset": output.offset,
        "oldest": output.oldest,
        "notices": [[text.decode("utf-8"), offset] for text, offset in output.notices.items()],
        "discarded": None if discarded is None else [discarded.reason, discarded.message],
        "waitsAfter": None if line is None else [line.reason, line.message, line.exit_code],
        "isTold": input.is_told,
        "missingPeople": input.missing_people,
        "hasInputEnded": input.has_ended,
        "bytesToMachine": input.bytes_to_machine,
        "restartedAt": input.restarted_at,
        "bytesToUser": output.bytes_to_user,
    }


def restore_viewer(console: SharedConsole, values: Mapping[str, Any]) -> Viewer | None:
    """
    Add a viewer of an earlier process, which waits for its stream.

    :param values: from :func:`export_viewer`.
    :return: ``None`` if the console has ended, or has another journal.
    :raises ValueError: the values are not valid.
    """
    return console.restore(_parse(values))


def _parse(values: Mapping[str, Any]) -> ViewerState:
    try:
        terms = parse_terms(values["terms"])
    except RemoteProtocolError as problem:
        raise ValueError(str(problem)) from None
    size, discarded, line = values["size"], values["discarded"], values["waitsAfter"]
    notices = {text.encode("utf-8"): offset for text, offset in values["notices"]}
    return ViewerState(
        session=values["session"],
        joined_as=values["joinedAs"],
        user=values["user"],
        terms=terms,
        options=StreamOptions.of(parse_qs(values["options"].encode("ascii"))),
        role=Role[values["role"].upper()],
        is_role_doubtful=values["isRoleDoubtful"],
        is_away=values["isAway"],
        size=None if size is None else TerminalSize(*size),
        epoch=values["epoch"],
        output=OutputState(values["offset"], values["oldest"], notices, values["bytesToUser"]),
        input=InputState(
            discarded=None if discarded is None else Ending(*discarded),
            is_told=values["isTold"],
            missing_people=values["missingPeople"],
            has_ended=values["hasInputEnded"],
            bytes_to_machine=values["bytesToMachine"],
            restarted_at=values.get("restartedAt"),  # earlier processes of this version lack it
        ),
        waits_after=None if line is None else Ending(*line),
    )

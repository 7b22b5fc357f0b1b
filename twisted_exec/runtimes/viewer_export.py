"""The state of a viewer for another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from twisted_exec.console.input import InputState
from twisted_exec.console.output import OutputState
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer import Viewer, ViewerState
from twisted_exec.streaming.interfaces import Ending, Role, TerminalSize
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.marks import parse_notice
from twisted_exec.wire.notices import decode_notice, encode_notice
from twisted_exec.wire.session_terms import parse_terms
from twisted_exec.wire.stream_options import StreamOptions


def export_viewer(viewer: Viewer) -> dict[str, Any] | None:
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
        # Texts as they are in output, which is also the form of release 0.2.0.
        "notices": [
            [encode_notice(notice.text).decode("utf-8"), offset]
            for notice, offset in output.notices.items()
        ],
        "noticeMarks": [notice.members for notice in output.notices],
        "discarded": None if discarded is None else [discarded.reason, discarded.message],
        "waitsAfter": None if line is None else [line.reason, line.message, line.exit_code],
        "isTold": input.is_told,
        "missingPeople": input.missing_people,
        "hasInputEnded": input.has_ended,
        "bytesToMachine": input.bytes_to_machine,
        "restartedAt": input.restarted_at,
        "bytesToUser": output.bytes_to_user,
        "liveFrom": output.live_from,
    }


def restore_viewer(console: SharedConsole, values: Mapping[str, Any]) -> Viewer | None:
    """
    Add a viewer of an earlier process, which waits for its stream.

    :return: ``None`` if the console has ended, or has another journal.
    :raises ValueError: the values are not valid; :class:`KeyError` if one is missing.
    """
    return console.restore(_parse(values))


def _parse(values: Mapping[str, Any]) -> ViewerState:
    try:
        terms = parse_terms(values["terms"])
    except RemoteProtocolError as problem:
        raise ValueError(str(problem)) from None
    size, discarded, line = values["size"], values["discarded"], values["waitsAfter"]
    notices = {}
    for (text, offset), mark in zip(values["notices"], values["noticeMarks"], strict=True):
        notice = parse_notice({**mark, "Notice": decode_notice(text.encode("utf-8"))})
        assert notice is not None
        notices[notice] = offset
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
        output=OutputState(
            values["offset"],
            values["oldest"],
            notices,
            values["bytesToUser"],
            values.get("liveFrom", 0),  # absent in the state of release 0.2.0
        ),
        input=InputState(
            discarded=None if discarded is None else Ending(*discarded),
            is_told=values["isTold"],
            missing_people=values["missingPeople"],
            has_ended=values["hasInputEnded"],
            bytes_to_machine=values["bytesToMachine"],
            restarted_at=values["restartedAt"],
        ),
        waits_after=None if line is None else Ending(*line),
    )

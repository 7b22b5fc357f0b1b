"""
Viewers that go on in another process: their state as JSON values.

The state of a viewer is what its user could notice the loss of: the role, the terms, the place in the
output, and notices that are not sent yet.  The console is suspended while its viewers are exported,
so no input is settled and no output is sent afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer import Viewer
from twisted_exec.streaming.interfaces import Ending, Role, TerminalSize
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.session_terms import parse_terms
from twisted_exec.wire.stream_options import StreamOptions


def export_viewer(viewer: Viewer) -> dict[str, Any] | None:
    """Return the state of a viewer; ``None`` if it has not joined, or its session is ending."""
    options, unsent, size = viewer._options, viewer._unsent, viewer._size
    if options is None or viewer.is_ending:
        return None
    output = viewer.output
    line = viewer._console.interruption.ending if viewer.is_interrupted else None
    return {
        "session": viewer.session,
        "joinedAs": viewer.joined_as,
        "user": viewer.user,
        "terms": viewer.terms.text(),
        "options": options.query().decode("ascii"),
        "role": viewer.role.name.lower(),
        "isRoleDoubtful": viewer._is_role_doubtful or viewer.role is not viewer._role_at_start,
        "isAway": viewer.is_away,
        "size": None if size is None else [size.columns, size.rows],
        "epoch": viewer.oldest.epoch,
        "offset": output.next_offset,
        "oldest": output.oldest,
        "notices": [[text.decode("utf-8"), offset] for text, offset in output.notices.items()],
        "discarded": None if unsent is None else [unsent.reason, unsent.message],
        "waitsAfter": None if line is None else [line.reason, line.message, line.exit_code],
        "isTold": viewer._is_told,
        "missingPeople": viewer._missing_people,
        "hasInputEnded": viewer._input_ended_at is not None,
        "bytesToMachine": viewer.bytes_to_machine,
        "bytesToUser": viewer.bytes_to_user,
    }


def restore_viewer(console: SharedConsole, values: Mapping[str, Any]) -> Viewer | None:
    """
    Add a viewer of an earlier process, which waits for its stream.

    :param values: from :func:`export_viewer`.
    :return: ``None`` if the console has ended, or has another journal.
    :raises ValueError: the values are not valid.
    """
    if console.ending is not None or console.journal.epoch != values["epoch"]:
        return None
    viewer = console.viewer()
    try:
        viewer.terms = parse_terms(values["terms"])
    except RemoteProtocolError as problem:
        raise ValueError(str(problem)) from None
    query = parse_qs(values["options"].encode("ascii"))
    viewer._options = StreamOptions.of(query)
    viewer._session, viewer.joined_as = values["session"], values["joinedAs"]
    viewer._user = values["user"]
    viewer._role = viewer._role_at_start = Role[values["role"].upper()]
    viewer._is_role_doubtful = values["isRoleDoubtful"]
    viewer.is_away = values["isAway"]
    if values["size"] is not None:
        viewer._size = TerminalSize(*values["size"])
    notices = {text.encode("utf-8"): offset for text, offset in values["notices"]}
    viewer.output.restore(values["offset"], values["oldest"], notices)
    viewer.output.bytes_to_user = values["bytesToUser"]
    if values["discarded"] is not None:
        viewer._unsent = Ending(*values["discarded"])
    if values["waitsAfter"] is not None:
        console.interruption.restore(viewer, Ending(*values["waitsAfter"]))
    viewer._is_told, viewer._missing_people = values["isTold"], values["missingPeople"]
    if values["hasInputEnded"]:
        viewer._input_ended_at = console.clock.seconds()
    viewer.bytes_to_machine = values["bytesToMachine"]
    console._restored(viewer)
    return viewer

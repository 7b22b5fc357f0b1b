"""The viewers of one console: how they join and leave, and how many sessions a policy allows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from twisted_exec.api.display import display_name
from twisted_exec.console import acts
from twisted_exec.console.floor import Floor, name_for
from twisted_exec.console.output import HarmlessOutput
from twisted_exec.console.presence import Presence
from twisted_exec.console.rate_limit import RateLimit
from twisted_exec.console.required_people import missing_people
from twisted_exec.console.viewer import ViewedConsole, Viewer
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.streaming.interfaces import TOO_MANY_VIEWERS, Ending, Position, Role, TerminalSize
from twisted_exec.wire.marks import Notice, NoticeKind
from twisted_exec.wire.session_terms import Terms

_INPUT_BURST_SECONDS = 1.0
_MOST_NAMES = 2
"""Users who are away, in a receipt; of more users it has the number of sessions."""


class ViewersConsole(ViewedConsole, Protocol):
    """What the viewers of a console need of it."""

    ending: Ending | None
    size: TerminalSize | None
    is_new_boot: bool
    announcement: str

    @property
    def journal(self) -> IJournal: ...
    @property
    def accepts_input(self) -> bool: ...
    @property
    def boot_offset(self) -> int: ...
    @property
    def has_break(self) -> bool: ...
    @property
    def is_live(self) -> bool: ...


class Viewers:
    """
    The viewers of a console, with those that are away.

    :ivar harmless_output: output without queries, for terminals that must not answer.
    :ivar input_rate: the rate of the input that terms limit, of all sessions together, in seconds that it takes.
    """

    def __init__(self, console: ViewersConsole) -> None:
        self._console = console
        self.floor = Floor(console.clock)
        self.harmless_output = HarmlessOutput(console.journal)
        self.input_rate = RateLimit(
            console.clock,
            self.update_input,
            self.update_input,
            bytes_per_second=1,
            burst_seconds=_INPUT_BURST_SECONDS,
        )
        self._all: list[Viewer] = []
        recorder = console.recorder
        self._presence = Presence(
            console.clock,
            self.floor,
            self._all,
            lambda: tuple(recorder.recordings),
            lambda: console.has_break,
            lambda: self.missing_people,
            lambda: console.size,
        )
        self._may_be_withheld = False  # a policy may withhold the input of a viewer

    def __iter__(self) -> Iterator[Viewer]:
        return iter(list(self._all))  # a viewer may leave in between

    def __contains__(self, viewer: object) -> bool:
        return viewer in self._all

    def __len__(self) -> int:
        return len(self._all)

    # People.

    @property
    def missing_people(self) -> str:
        return missing_people(self._all)

    def missing_place(self, terms: Terms) -> str:
        return missing_place(self._all, terms)

    def attendance_changed(self) -> None:
        if self._console.ending is not None:
            return
        self._presence.changed()
        self._follow_size()
        if self.input_rate.is_paused:
            self.update_input()  # an observer's input waits no longer: it is discarded
        missing = self.missing_people
        if not missing and not self._may_be_withheld:
            return
        changed = [
            each.input.people_changed(missing if each.role is Role.WRITER else "")
            for each in self
            if not each.is_away
        ]
        self._may_be_withheld = any(each.input.is_withheld for each in self._all)
        if any(changed):
            self.update_input()

    def _follow_size(self) -> None:
        """Give the line the size of a writer who is here, unless it has the size of one already."""
        writers = [each for each in self if each.role is Role.WRITER and not each.is_away]
        sizes = [each.size for each in writers if each.size is not None]
        if sizes and self._console.size not in (None, *sizes):
            self._console.window_changed(sizes[-1])

    def recordings_changed(self) -> None:
        if self._console.ending is None:
            self._presence.recordings_changed()

    def size_changed(self) -> None:
        if self._console.ending is None:
            self._presence.size_changed()

    def role_changed(self, viewer: Viewer) -> None:
        if viewer in self._all:
            self._console.journal.role_changed(
                viewer.joined_as, viewer.user, viewer.role.name.lower()
            )

    def stop(self) -> None:
        self._presence.stop()
        self.floor.stop()
        self.input_rate.stop()

    def answers(self, viewer: Viewer) -> bool:
        """
        Return whether a viewer gets the queries that the machine prints now.

        At most one terminal does: the newest of the writer. Streams without a terminal do, too:
        they answer nothing.
        """
        if not viewer.has_terminal:
            return True
        if viewer.role is not Role.WRITER:
            return False
        answering = (
            each
            for each in reversed(self._all)
            if each.role is Role.WRITER and each.has_terminal and not each.is_away
        )
        return next(answering, None) is viewer

    # Input.

    def update_input(self) -> None:
        """Read the viewers' input, or let it wait."""
        for viewer in self:
            self.update_input_of(viewer)

    def update_input_of(self, viewer: Viewer) -> None:
        is_read = self._console.accepts_input or viewer.input.is_discarded
        if is_read and not viewer.is_slowed:
            viewer.resume_input()
        else:
            viewer.pause_input()

    # Joining and leaving.

    def join(self, viewer: Viewer, position: Position | None = None) -> None:
        console, journal = self._console, self._console.journal
        if why := self.missing_place(viewer.terms):
            viewer.output.start(journal.end)
            viewer.finish(Ending(TOO_MANY_VIEWERS, why))
            return
        if position is None:
            viewer.output.start(console.scrollback_start)
            if viewer.banner:
                banner = Notice(f"banner: {' | '.join(viewer.banner)}", NoticeKind.BANNER)
                viewer.output.precede(banner, viewer.output.prompt_start)
        else:
            viewer.output.resume(position, console.scrollback_start)
            if console.interruption.ending is not None:
                console.interruption.join(viewer)
            elif (offset := self._restarted_at) is not None and position.offset <= offset:
                viewer.input.is_interrupted = console.is_new_boot and not console.is_live
                viewer.input.fall_behind(offset)
                viewer.input.catch_up(position)
        self._all.append(viewer)
        journal.joined(viewer.joined_as, viewer.user, viewer.role.name.lower())
        self.update_input_of(viewer)
        viewer.output.pump()
        if console.outage:
            viewer.tell(Notice(console.outage))
        elif console.announcement:
            viewer.tell(Notice(console.announcement))
        if console.ending is not None:
            viewer.finish(console.ending)
        else:
            if position is None:
                self.floor.join(viewer, force=viewer.forces, observe=viewer.observes)
            else:
                self.floor.rejoin(viewer, observe=viewer.observes)
            self.attendance_changed()
            self._presence.joined(viewer)
        console.pace()

    @property
    def _restarted_at(self) -> int | None:
        """The offset of the present boot, if sessions of an earlier process may know another boot."""
        if self._console.is_new_boot:
            return self._console.boot_offset
        # A machine that survived the earlier process may have started again during that process.
        try:
            boots = self._console.journal.boots()
        except OSError:
            return None  # not known at present
        return boots[-1].offset if boots and boots[-1].number > 1 else None

    def went_away(self) -> None:
        self.floor.follow_presence()
        self.attendance_changed()
        self._console.pace()

    def came_back(self, viewer: Viewer) -> None:
        self.floor.follow_presence()
        self.attendance_changed()
        self.update_input_of(viewer)
        viewer.output.pump()
        self._console.pace()

    def leave(self, viewer: Viewer) -> None:
        if viewer in self._all:
            self._all.remove(viewer)
            if not self._all:
                self.harmless_output.forget()
            self._console.journal.left(viewer.joined_as, viewer.user)
        if self._console.ending is None:
            self.floor.leave(viewer)
            self.attendance_changed()
        self._console.pace()

    def say(self, sender: Viewer, text: str) -> None:
        """
        Pass a message of a user on to the other users, and tell the user who gets it.

        Only streams with marks get it: in the output of a session it could not be told from what
        the machine prints, and a script would read it. The audit log has each message that is
        passed on.
        """
        if self._console.ending is not None:
            return  # the client has no receipt, and says so
        others = [each for each in self if each is not sender and not each.is_ending]
        if not others:
            alone = "nobody else is at this console to read your message"
            sender.tell(Notice(alone, NoticeKind.RECEIPT))
            return  # it counts for no limit
        reports = self._console.reports
        act = acts.Act(acts.MESSAGE, sender.session, sender.user, "", text)
        if not reports.report(act):
            sender.message_refused(reports.most(act), reports.wait_seconds(act))
            return
        notice = Notice(f'message from {display_name(sender.user)}: "{text}"', NoticeKind.SAID)
        for each in others:
            if not each.has_plain_client:
                each.tell(notice)
        here = [each.has_plain_client for each in others if not each.is_away]
        away = [name_for(each, sender) for each in others if each.is_away]
        receipt = _receipt(text, here.count(False), sum(here), away)
        sender.tell(Notice(receipt, NoticeKind.RECEIPT))


def _receipt(text: str, readers: int, others: int, away: Collection[str]) -> str:
    """
    Return the receipt for a message.

    :param others: number of connected sessions that cannot show it.
    :param away: the users of sessions whose connections are lost, once for each session.
    """
    names, is_alone = list(dict.fromkeys(away)), not readers and not others
    many = f"{len(away)} {'viewers' if is_alone else 'more'}"
    who = " and ".join(names) if len(names) <= _MOST_NAMES else many
    verb = "is away and reads" if len(names) == 1 else "are away and read"
    if away and is_alone:
        return f'{who} {verb} your message on return: "{text}"'
    to = "1 viewer" if readers == 1 else f"{readers} viewers"
    unseen = f" ({others} more cannot show it)" if others else ""
    later = f"; {who} {verb} it on return" if away else ""
    return f'your message to {to}{unseen}{later}: "{text}"'


def missing_place(viewers: Collection[Viewer], terms: Terms) -> str:
    """
    Return why these viewers leave no place for another session with these terms; empty if they do.

    No open session has to leave, not even after a change of the policy, and a session whose
    connection is lost keeps its place. Only the terms of the new session count: any client can send
    stricter terms for its own session, and would keep all others out with them.
    """
    present = sum(not each.is_ending for each in viewers)
    if not terms.viewers or present < terms.viewers:
        return ""
    allowed = "1 session" if terms.viewers == 1 else f"{terms.viewers} sessions"
    is_open = "1 is open" if present == 1 else f"{present} are open"
    return (
        f"{terms.rule('allow', 'viewers')} {allowed} at this console, and {is_open};"
        " try again when one of them has ended"
    )

"""``--tiled``: the terminal, the keys and the drawing around the screens and the sessions."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.screens import ScreenForm, ScreenOptions
from twisted_exec.api.status import APIError
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.terminal import Terminal, TerminalInput, TerminalOutput, nonblocking
from twisted_exec.cli.console.views import Key, first_key, fitted
from twisted_exec.cli.fleet.screens import FleetScreens
from twisted_exec.cli.fleet.targets import FleetTarget, SelectionError, open_target
from twisted_exec.cli.fleet.task import Task, complain
from twisted_exec.cli.fleet.tile_drawing import ScreenText, draw_tile
from twisted_exec.cli.fleet.tiles import HELP, Mode, TileRequest, TilesModel
from twisted_exec.cli.fleet.typing import TypedSessions
from twisted_exec.cli.messages import one_line
from twisted_exec.kube.downloads import read_screen
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.machine_requests import TIMEOUT_SECONDS
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser

DRAW_SECONDS = 0.03
HASTY_SECONDS = 0.5
"""A key that follows another key within this time is part of a text."""
_UNSENT_BYTES = 256 << 10
_FAREWELL_SECONDS = 0.3
_LEAVE_TYPING = b"\x1d"
_BEGIN, _END = b"\x1b[?1049h\x1b[?25l\x1b[2J", b"\x1b[?25h\x1b[?1049l"


class Tiled(Task):
    """Shows the screens of all selected machines."""

    def __init__(
        self, options: argparse.Namespace, config: ClientConfig, reactor: Any, terminal: Terminal
    ) -> None:
        super().__init__(options, config, reactor)
        self._terminal = terminal
        self._view: View | None = None
        self._is_drawn = False
        self._last_words: list[str] = []

    async def work(self) -> int:
        if not (self._terminal.is_terminal and os.isatty(1)):
            return complain(
                "--tiled needs a terminal; without it the lines of the machines are printed"
            )
        with nonblocking(0, os.O_RDONLY) as source, nonblocking(1, os.O_WRONLY) as sink:
            try:
                await self.selected(lambda targets: self._found(targets, source, sink))
                await self.unless_stopped(Deferred())
            except SelectionError as problem:
                return complain(str(problem))
            finally:
                if self._view is not None:
                    await self._leave(self._view)
        return 0

    def _found(self, targets: Sequence[FleetTarget], source: int, sink: int) -> None:
        if self._view is not None:
            self._view.add(targets)
            return
        self._terminal.make_raw()
        self._is_drawn = True
        self._output = TerminalOutput(
            sink, lambda error: self.stop(1 if error else 0), self.reactor
        )
        view = self._view = View(self, targets, self._output, self._size())
        self._keyboard = TerminalInput(source, view.typed, lambda: self.stop(1), self.reactor)
        self._keyboard.resumeProducing()

    async def _leave(self, view: View) -> None:
        self._keyboard.stop()
        self.is_partial |= view.close() > 0
        self._output.stopWriting()
        self._output.connected = 0
        # The sessions say goodbye, so that their servers need not keep them.
        left: Deferred[None] = Deferred()
        self.reactor.callLater(_FAREWELL_SECONDS * view.has_typed, left.callback, None)
        await left

    def inform(self, line: str) -> None:
        if self._view is None:
            super().inform(line)

    def say(self, line: str) -> None:
        """See :meth:`Task.say`; a message over the tiles is printed again after they are gone."""
        if self._view is None:
            super().say(line)
        else:
            self._view.tell(line)
            self._last_words.append(line)

    def resized(self) -> None:
        if self._view is not None:
            self._view.resized(self._size())

    def restore(self) -> None:
        if self._is_drawn:
            with suppress(OSError):
                os.write(1, _END)
        for line in self._last_words:
            super().say(line)

    def _size(self) -> tuple[int, int]:
        size = self._terminal.size()
        return (size.columns, size.rows) if size is not None else (80, 24)


class View:
    """
    Joins the model to the machines and to the terminal.

    :ivar has_typed: sessions were opened.
    """

    def __init__(
        self,
        task: Task,
        targets: Sequence[FleetTarget],
        output: TerminalOutput,
        size: tuple[int, int],
    ) -> None:
        self._task, self._targets, self._output = task, list(targets), output
        self._reactor = task.reactor
        self._labels = [target.label for target in targets]
        self.model = TilesModel(self._labels, *size, may_type=not task.options.read_only)
        self.has_typed = False
        self._screens = FleetScreens(
            self._fetch, self._reactor, self._draw_tile_later, self._cluster_of
        )
        self._sessions = TypedSessions(
            self._open_console,
            self._labels,
            self._reactor,
            self._screens.printed,
            self._sessions_changed,
            self._noticed,
            self._cluster_of,
        )
        self._typed_at = 0.0
        self._dirty: set[int] = set()
        self._is_clear = True
        self._timer: Any = None
        output.write(_BEGIN)
        self._turned()

    def add(self, targets: Sequence[FleetTarget]) -> None:
        """Show more machines, behind the others."""
        self._targets += targets
        self._labels += [target.label for target in targets]
        self._turned()

    def tell(self, message: str) -> None:
        """Show a message, unless the row for it is in use."""
        if self.model.mode is Mode.BROWSE:
            self.model.message = one_line(message)
            self._draw_all_later()

    def _cluster_of(self, index: int) -> str:
        return self._targets[index].cluster.name

    def typed(self, data: bytes) -> None:
        """The user has typed."""
        now = self._reactor.seconds()
        is_hasty, self._typed_at = now - self._typed_at < HASTY_SECONDS, now
        while data:
            if self._is_typing:
                text, mark, data = data.partition(_LEAVE_TYPING)
                if text:
                    self._sessions.type(text)
                if mark:
                    self._sessions.close()
                    self.model.stopped()
                    self._draw_all_later()
                continue
            key, length = first_key(data)
            typed, data = data[:length], data[length:]
            self._key(key, typed, is_hasty or bool(data))

    @property
    def _is_typing(self) -> bool:
        return self.model.mode is Mode.TYPING

    def _key(self, key: Key | str | None, typed: bytes, is_hasty: bool) -> None:
        before = self.model.page, self.model.grid, self.model.mode
        request = self.model.key(key, typed, is_hasty=is_hasty)
        if request is TileRequest.LEAVE:
            self._task.stop()
            return
        if request is TileRequest.OPEN:
            self.has_typed = True
            self._sessions.open(self.model.marked)
        elif request is TileRequest.GIVE_UP:
            self._sessions.close()
        elif request is TileRequest.TYPE:
            self._sessions_changed()
        if before != (self.model.page, self.model.grid, self.model.mode):
            self._turned()
        else:
            self._draw_all_later()

    def resized(self, size: tuple[int, int]) -> None:
        """The terminal has another size."""
        self.model.resize(*size)
        self._turned()

    def close(self) -> int:
        """Stop; return the number of machines that failed."""
        failed = self._screens.failed
        self._screens.close()
        self._sessions.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return failed

    # The machines.

    def _fetch(self, index: int) -> Deferred[ScreenText]:
        target, options = self._targets[index], self._task.options

        async def fetched() -> ScreenText:
            body = await read_screen(
                target.cluster.config,
                target.namespace,
                target.name,
                ScreenOptions(form=ScreenForm.JSON),
                self._reactor,
                among=(target.dialect,),
                timeout_seconds=options.request_timeout or TIMEOUT_SECONDS,
                agent=target.cluster.agent,
            )
            screen = ScreenText.parse(json.loads(body))
            before, _ = self._screens.screen(index)
            if before is not None and before.position != screen.position:
                return screen
            return replace(screen, note=await self._note(target, screen))

        return Deferred.fromCoroutine(fetched())

    async def _note(self, target: FleetTarget, screen: ScreenText) -> str:
        """Return why a screen is blank or stays the same, if the machine can be read; may be empty."""
        cluster, seconds = target.cluster, self._task.options.request_timeout or TIMEOUT_SECONDS
        client = CommandClient(
            cluster.config, self._reactor, timeout_seconds=seconds, agent=cluster.agent
        )
        try:
            machine = await client.get(target.dialect.workload, target.name, target.namespace)
        except APIError:
            return ""
        finally:
            await client.close()
        state = one_line(str(machine.get("status", {}).get("state", "Unknown")))
        if state != "Running":
            return f"the machine does not run: {state}"
        return "nothing was printed yet" if screen.is_blank else ""

    def _open_console(self, index: int, user: ConsoleUser) -> Deferred[ConsoleStream]:
        return open_target(self._targets[index], user, self._reactor, self._task.options)

    def _sessions_changed(self) -> None:
        model, sessions = self.model, self._sessions
        if model.mode is Mode.OPENING and not sessions.is_opening:
            request = model.opened(sessions.usable, sessions.problem)
            if request is TileRequest.GIVE_UP:
                sessions.close()
            elif request is TileRequest.TYPE:
                sessions.type(model.take_ahead())
        elif self._is_typing:
            model.typing(sessions.usable, sessions.problem)
            if not self._is_typing:
                sessions.close()
        self._draw_all_later()

    def _noticed(self, text: str) -> None:
        self.model.typing(self._sessions.usable, text)
        self._draw_all_later()

    # Drawing.

    def _turned(self) -> None:
        self._is_clear = True
        self._screens.show(self.model.page)
        self._draw_all_later()

    def _draw_all_later(self) -> None:
        self._dirty |= set(self.model.page)
        self._draw_later()

    def _draw_tile_later(self, index: int) -> None:
        self._dirty.add(index)
        self._draw_later()

    def _draw_later(self) -> None:
        if self._timer is None:
            self._timer = self._reactor.callLater(DRAW_SECONDS, self._draw)

    def _draw(self) -> None:
        self._timer = None
        if self._output.unsent > _UNSENT_BYTES:  # a slow terminal gets the newest state later
            self._draw_later()
            return
        self.model.recorded = self._sessions.recorded
        columns, rows = self.model.size
        parts = ["\x1b[2J"] * self._is_clear
        self._is_clear = False
        if self.model.mode is Mode.HELP:
            lines = HELP[: rows - 1]
            parts += [f"\x1b[{row};1H{fitted(line, columns)}" for row, line in enumerate(lines, 1)]
        else:
            page, grid = self.model.page, self.model.grid
            for index in sorted(self._dirty & set(page)):
                screen, problem = self._screens.screen(index)
                place = grid.place(index - page.start)
                message = problem or ("opening" if screen is None else screen.note)
                title = self.model.title(index)
                parts.append(draw_tile(place, grid, title, screen, message, self.model.skip))
        self._dirty.clear()
        style = "\x1b[1;7m" if self.model.mode in (Mode.TYPING, Mode.CONFIRM) else ""
        # Not in the last column, which would scroll some terminals.
        parts.append(f"\x1b[{rows};1H{style}{fitted(self.model.status, columns - 1)}\x1b[m")
        self._output.write("".join(parts).encode("utf-8", "replace"))

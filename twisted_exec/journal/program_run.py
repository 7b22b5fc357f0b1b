"""
The present run of the program, and the last one, which may have lost output.

A file ``run`` beside the journals says so. Until the journals have their output, a run has it also in
a file in memory (:mod:`.front`), which ``run`` names for the next start.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from twisted.logger import Logger

from twisted_exec.journal import front
from twisted_exec.journal.directories import is_key
from twisted_exec.journal.file_access import opened, sync_directory, write_whole
from twisted_exec.journal.lifetime import Lifetime, given_up
from twisted_exec.program.state_files import from_document

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_FRONT = re.compile(r"twisted-exec-[0-9a-f]{32}")


@dataclass(frozen=True)
class ProgramRun:
    """
    One run of the program.

    :param cut: number of the last run that may have lost output that viewers saw; 0 if there was
        none.
    :param front: name of the file in memory of the run; empty after a clean end.
    """

    number: int
    kernel: str
    clean: bool
    cut: int
    time_ns: int
    front: str = ""


def kernel_boot() -> str:
    """Return an id of the boot of the kernel, or an empty text."""
    try:
        with open(_BOOT_ID) as file:
            return file.read(100).strip()
    except OSError:
        return ""


def next_run(
    last: ProgramRun | None,
    kernel: str,
    now: int,
    *,
    is_new: bool,
    front: str = "",
    has_lost: bool = False,
) -> ProgramRun:
    """
    Return the run that begins now.

    :param has_lost: the file in memory of the last run is gone.
    """
    if last is None:
        if is_new:
            return ProgramRun(1, kernel, False, 0, now, front)
        number = max(2, now // 1_000_000_000)  # beyond every number before
        return ProgramRun(number, kernel, False, number - 1, now, front)  # assume the worst
    was_cut = has_lost or (not last.clean and (last.kernel != kernel or not kernel))
    return ProgramRun(
        last.number + 1, kernel, False, last.number if was_cut else last.cut, now, front
    )


def read_run(layer: Any, path: str) -> ProgramRun | None:
    """Read the file, or return ``None`` if that fails."""
    try:
        with opened(layer, path) as descriptor:
            return from_document(ProgramRun, json.loads(layer.pread(descriptor, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None


def write_run(
    layer: Any, path: str, run: ProgramRun, check: Callable[[], None] = lambda: None
) -> None:
    """
    Write the file.

    :param check: raises an error if the file must not be replaced any more; maybe in a thread.
    """
    with suppress(FileNotFoundError):  # a call that still waits for the disk may write to it
        layer.unlink(f"{path}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with opened(layer, f"{path}.new", flags) as descriptor:
        write_whole(layer, descriptor, json.dumps(asdict(run)).encode())
        layer.fsync(descriptor)
    check()
    layer.rename(f"{path}.new", path)
    sync_directory(layer, os.path.dirname(path))


class StoreRun:
    """
    The run of the program that writes the journals of one directory.

    :param path: the directory.
    :param memory: the directory of files in memory.
    :param kernel: id of the boot of the kernel.
    :param now: the time of day, in nanoseconds since the epoch.
    :ivar front: its file in memory; ``None`` before :meth:`begin`.
    """

    _log = Logger()

    def __init__(
        self,
        lifetime: Lifetime,
        layer: Any,
        path: str,
        memory: str,
        kernel: str,
        now: Callable[[], int],
    ) -> None:
        self._lifetime, self._layer = lifetime, layer
        self._directory, self._path = path, os.path.join(path, "run")
        self._memory, self._kernel, self._now = memory, kernel, now
        self.front: front.Front | None = None
        self._spare = front.spare_path(memory, path)
        self._earlier = ""
        self._left: dict[str, list[front.Unwritten]] = {}
        self._present: ProgramRun | None = None
        # What the disk has of this run, or is to have; ``None`` if the disk did not take it.
        self._noted: ProgramRun | None = None

    @property
    def present(self) -> ProgramRun:
        """:raises OSError: no run has begun."""
        if self._present is None:
            raise OSError(errno.ENXIO, "the store is not open", self._directory)
        return self._present

    def begin(self, *, is_new: bool) -> ProgramRun | None:
        """
        Begin a run.  :meth:`left` has what the last one left, and :meth:`took_over` follows.

        :param is_new: there are no journals yet.
        :return: the last run; ``None`` if that is not known.
        """
        self._noted = None
        last = read_run(self._layer, self._path)
        left = self._read_front(last)
        self.front = front.Front(self._memory)
        for each in left or ():  # before the disk names this file in place of the earlier one
            self.front.add(each)
        self._present = next_run(
            last,
            self._kernel,
            self._now(),
            is_new=is_new,
            front=self.front.name,
            has_lost=left is None,
        )
        try:
            self._note(self._present)
        except OSError as error:
            self._log.warn("journals are not on disk at present: {why}", why=error.strerror)
        self._left = {}
        for each in left or ():
            if is_key(each.key):
                self._left.setdefault(each.key, []).append(each)
        is_named = last is not None and _FRONT.fullmatch(last.front)
        self._earlier = os.path.join(self._memory, last.front) if last and is_named else ""
        return last

    def _read_front(self, last: ProgramRun | None) -> Sequence[front.Unwritten] | None:
        if front.is_own(self._spare):  # of a run whose name the disk did not take
            return front.read(self._spare)
        if last is None or last.clean or last.kernel != self._kernel or not last.front:
            return ()
        if not _FRONT.fullmatch(last.front):
            return None
        return front.read(os.path.join(self._memory, last.front))

    def _note(self, run: ProgramRun) -> None:
        write_run(self._layer, self._path, run)
        self._noted = run

    @property
    def keys_left(self) -> Sequence[str]:
        """The keys of the journals of which the last run left something."""
        return list(self._left)

    def left(self, key: str, epoch: bytes) -> Sequence[front.Unwritten]:
        """Return what the last run left to be written to a journal, once."""
        return [each for each in self._left.pop(key, ()) if each.epoch == epoch]

    def took_over(self) -> None:
        """Drop the file in memory of the last run; the journals have its content."""
        assert self.front is not None
        if self._noted is None:
            self.front.move(self._spare)
        else:
            self._remove_earlier()

    def _remove_earlier(self) -> None:
        if self._earlier:
            front.remove(self._earlier)
            self._earlier = ""
        if front.is_own(self._spare):
            front.remove(self._spare)

    def begin_writing(self) -> None:
        """
        Note the run on the disk, before anything else is written there.

        :raises OSError: the disk does not take it.
        """
        if self._noted is not None:
            return
        assert self.front is not None
        is_spare = self.front.path == self._spare
        if is_spare:
            self.front.add_name(self._memory)
        try:
            self._note(self.present)
        except OSError:
            if is_spare:
                self.front.remove_name(self._memory)
            raise
        if is_spare:
            self.front.move_back(self._memory)
        self._remove_earlier()

    def all_written(self) -> None:
        """Handle that the files of journals have all output."""
        if self.front is not None:
            self.front.clear()

    async def end(self) -> None:
        """Note that the run ends, and has lost nothing; the disk has all output."""
        if self._noted is None:
            return
        ending = self._noted = replace(self.present, clean=True, time_ns=self._now(), front="")

        def check() -> None:
            if self._noted is not ending:
                raise given_up()

        try:
            await self._lifetime.in_thread(
                partial(write_run, self._layer, self._path, ending, check)
            )
        except OSError as error:
            self._log.warn("journals: {why}", why=error.strerror)
        else:
            if self.front is not None:
                self.front.remove()

    def give_up(self) -> None:
        """Note no end any more."""
        if self._noted is not None:
            self._noted = self.present

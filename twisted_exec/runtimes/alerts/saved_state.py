"""
The state of alerts that survives a restart: times of reports, and machines that need a person.

:mod:`twisted_exec.runtimes.alerts.health` decides which machines these are.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from twisted.logger import Logger

from twisted_exec.api.display import reason_of
from twisted_exec.program.disk_thread import Files
from twisted_exec.program.state_files import from_document
from twisted_exec.tls.files import owner_only

UNKNOWN_BOOT = -1
"""The disk did not answer when the line was found."""
MOST_REPORTS = 20_000
MOST_MACHINES = 20_000
_MOST_FILE_BYTES = 16 << 20


@dataclass(frozen=True)
class Unhealthy:
    """
    Why a machine needs a person.

    :param boot: number of the boot in which the line was printed, or :data:`UNKNOWN_BOOT`; a later
        boot ends the condition.
    """

    pattern_id: str
    reason: str
    message: str
    epoch: str
    boot: int


class SavedState:
    """The state of the alerts of one runtime, in one file."""

    _log = Logger()

    def __init__(self, path: str, thread: Files) -> None:
        self._path, self._thread = path, thread
        self._reports: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._count = 0
        self._unhealthy: OrderedDict[str, Unhealthy] = OrderedDict()
        self._is_changed = self._has_failed = False
        self._load()

    def reported(self, uid: str, pattern_id: str) -> int | None:
        """Return when the last reported match was printed (nanoseconds), or ``None``."""
        return self._reports.get(uid, {}).get(pattern_id)

    def report(self, uid: str, pattern_id: str, time_ns: int) -> None:
        of_machine = self._reports.setdefault(uid, {})
        self._reports.move_to_end(uid)
        self._count += pattern_id not in of_machine
        of_machine[pattern_id] = time_ns
        while self._count > MOST_REPORTS and len(self._reports) > 1:
            _, oldest = self._reports.popitem(last=False)
            self._count -= len(oldest)
        self._is_changed = True

    def unhealthy(self, uid: str) -> Unhealthy | None:
        """Return why a machine needs a person, if it does."""
        return self._unhealthy.get(uid)

    def set_unhealthy(self, uid: str, why: Unhealthy | None) -> None:
        if self._unhealthy.get(uid) == why:
            return
        self._is_changed = True
        if why is None:
            del self._unhealthy[uid]
            return
        self._unhealthy[uid] = why
        if len(self._unhealthy) > MOST_MACHINES:
            self._unhealthy.popitem(last=False)

    def forget(self, uid: str) -> None:
        self.set_unhealthy(uid, None)
        of_machine = self._reports.pop(uid, {})
        self._count -= len(of_machine)
        self._is_changed |= bool(of_machine)

    def save(self) -> None:
        """Write the file if anything has changed. If that fails, the next call tries again."""
        if not self._is_changed:
            return
        document = {
            "reports": self._reports,
            "unhealthy": {uid: asdict(why) for uid, why in self._unhealthy.items()},
        }
        try:
            self._thread.call(partial(self._write, json.dumps(document)))
        except OSError as error:
            if not self._has_failed:
                why = error.strerror
                self._log.warn("{path} cannot be written: {why}", path=self._path, why=why)
            self._has_failed = True
        else:
            self._is_changed = self._has_failed = False

    def _write(self, text: str) -> None:
        temporary = f"{self._path}.new"
        with open(temporary, "w", encoding="utf-8", opener=owner_only) as file:
            file.write(text)
        os.replace(temporary, self._path)

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                document = json.loads(file.read(_MOST_FILE_BYTES))
            reports = {str(uid): _times(times) for uid, times in document["reports"].items()}
            unhealthy = {
                str(uid): from_document(Unhealthy, why)
                for uid, why in document["unhealthy"].items()
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = reason_of(error)
            self._log.warn("{path} is ignored: {why}", path=self._path, why=why)
            return
        self._reports.update(reports)
        self._count = sum(map(len, reports.values()))
        self._unhealthy.update(unhealthy)


def _times(entry: Any) -> dict[str, int]:
    return {str(pattern_id): int(time_ns) for pattern_id, time_ns in entry.items()}

"""
The limit of a benchmark: instead of hanging, it says what it waits for, and ends with everything that it has started.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from tests import procfs
from tests.flows.deployment import working


@contextmanager
def limited(name: str, seconds: float) -> Iterator[None]:
    """End the process if the body takes longer; standard error then has what each thread and coroutine waits for."""
    watchdog = threading.Timer(seconds, _end, (name, seconds))
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def _end(name: str, seconds: float) -> None:
    print(f"benchmark {name}: no end within {seconds:g} s. It waits here:", file=sys.stderr)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            _print(f"thread {names.get(ident, ident)}", traceback.extract_stack(frame))
    for coroutine in working:
        _print("coroutine", traceback.StackSummary.extract(_frames(coroutine)))
    sys.stderr.flush()
    for pid in procfs.descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(1)


def _print(title: str, stack: traceback.StackSummary) -> None:
    print(f"  {title}:\n{''.join(stack.format())}", end="", file=sys.stderr)


def _frames(coroutine: Coroutine[Any, Any, Any] | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a suspended coroutine and of those that it awaits, the outermost first."""
    while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame, frame.f_lineno
        coroutine = getattr(coroutine, "cr_await", None)

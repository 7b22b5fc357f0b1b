"""
Entry points of the commands, which Ctrl-C ends without a traceback at their start and end.

Python raises KeyboardInterrupt wherever the program is, also in the middle of an import.  So SIGINT
ends the process silently until a command has something to clean up, and again when it has finished.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False  # typing itself would be an import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Load = Callable[[], Callable[[], int]]


def kubectl_console() -> int:
    """Run ``kubectl-console``."""

    def load() -> Callable[[], int]:
        from twisted_exec.cli.console.main import main

        return main

    return _run(load)


def kubectl_complete_console() -> int:
    """Run ``kubectl_complete-console``."""

    def load() -> Callable[[], int]:
        from twisted_exec.cli.commands.completion import main

        return main

    return _run(load)


def twisted_exec() -> int:
    """Run ``twisted-exec``."""

    def load() -> Callable[[], int]:
        from twisted_exec.cli.main import main

        return main

    return _run(load)


def _run(load: Load) -> int:
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return load()()  # ignored, as in background jobs of plain shells
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.unraisablehook = _unraisable
    try:
        return load()()
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _unraisable(problem: Any) -> None:
    """
    End the process if Ctrl-C came in a callback of the interpreter, which swallows exceptions.
    """
    if problem.exc_type is KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    sys.__unraisablehook__(problem)

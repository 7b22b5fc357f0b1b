"""
A command that asks once: in a reactor of its own, and with one line when there is no answer.

Twisted is imported only when there is something to ask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any

from twisted_exec.cli.console import one_line

_INTERRUPTED = 130

Asking = Callable[[Any], Coroutine[Any, Any, int]]
"""Asks with a reactor, and returns the exit code."""


def ask_once(command: str, asking: Asking) -> int:
    """
    Run a reactor until there is an answer.

    :param command: what was typed, such as ``iri``, for what goes wrong.
    :return: the exit code: that of ``asking``, 1 after a line when it has failed, or 130 when
        somebody interrupts it.
    """
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred
    from twisted.logger import globalLogBeginner
    from twisted.python.failure import Failure

    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    codes: list[int] = []

    def crashed(failure: Failure) -> int:
        told = f"{type(failure.value).__name__}: {failure.getErrorMessage()}"
        return failed(command, f"internal error: {told}")

    def begin() -> None:
        answering = Deferred.fromCoroutine(asking(reactor)).addErrback(crashed)
        answering.addCallback(codes.append)
        answering.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    return codes[0] if codes else _INTERRUPTED


def failed(command: str, why: str) -> int:
    """Tell it in one line on stderr; :return: the exit code, 1."""
    print(f"twisted-exec {command}: {one_line(why)}", file=sys.stderr)
    return 1

"""
The twistd plugin of a program, and signals while the program starts.

Python answers Ctrl-C with a traceback, and Twisted's own handler is installed only when the reactor
runs. So SIGINT ends the process silently during the imports, and from then on stops the reactor as
soon as that runs.  SIGUSR2 asked release 0.2.0 to hand over to a new process; this release only answers.

Each twistd of this environment imports this module, so it must not import anything heavy.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from twisted.application.service import ServiceMaker

REPLACED_BY_RESTART = "this release is replaced by a restart: install the other one, then stop this program and start it again"


class ProgramMaker(ServiceMaker):
    """A plugin for a module with ``Options`` and ``makeService``, imported when twistd runs it."""

    @property
    def options(self) -> Any:
        """
        The options of the program that was chosen on the command line.

        :raises SystemExit: a library is missing.
        """
        end_on_interrupt()
        refuse_hand_over(self.tapname)
        collects = gc.isenabled()
        gc.disable()  # a seventh of the time of the imports
        try:
            return super().options
        except ModuleNotFoundError as error:
            from twisted_exec.program.libraries import missing_library

            raise SystemExit(f"{self.tapname}: {missing_library(error)}") from None
        finally:
            if collects:
                # Imports leave little garbage, 0.4 MB.  Two collections of all that they made would take 90 ms.
                gc.freeze()
                gc.enable()


def end_on_interrupt() -> None:
    """
    End the process on SIGINT without a traceback, and answer SIGUSR2 with a line in the log.

    Does nothing if the process has a reactor, which belongs to another program.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if "twisted.internet.reactor" in sys.modules:
        return
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR2, _answer_hand_over)


def _answer_hand_over(number: int, frame: object) -> None:
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None:
        from twisted.logger import Logger

        log = Logger("twisted_exec").warn
        reactor.callFromThread(log, "SIGUSR2: {why}", why=REPLACED_BY_RESTART)


def refuse_hand_over(program: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """
    Refuse to continue a process of release 0.2.0, which has started this one at its SIGUSR2.

    That process waits for an answer over a socket pair, and goes on.

    :raises SystemExit: there is such a process.
    """
    number = environ.pop("TWISTED_EXEC_HANDOVER", "")
    if not (number.isascii() and number.isdigit()):
        return
    answer = json.dumps({"failed": REPLACED_BY_RESTART}).encode() + b"\n"
    with suppress(OSError), socket.socket(fileno=int(number)) as channel:
        channel.sendall(answer)
    raise SystemExit(f"{program}: {REPLACED_BY_RESTART}")


def stop_on_interrupt(reactor: Any) -> None:
    """Stop a reactor on SIGINT, also before it runs; call this after :func:`end_on_interrupt`."""

    def stop(number: int, frame: Any) -> None:
        # A second stop would be an error; the handler for signals during the stop comes with the stop.
        signal.signal(number, lambda *_: None)
        reactor.sigInt(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, stop)

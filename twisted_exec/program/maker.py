"""
The twistd plugin of a program, and Ctrl-C while the program starts.

Python answers Ctrl-C with a traceback, and Twisted's own handler is installed only when the reactor
runs. So SIGINT ends the process silently during the imports, and from then on stops the reactor as
soon as that runs.

Each twistd of this environment imports this module, so it must not import anything heavy.
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import Any

from twisted.application.service import ServiceMaker


class ProgramMaker(ServiceMaker):
    """A plugin for a module with ``Options`` and ``makeService``, imported when twistd runs it."""

    @property
    def options(self) -> Any:
        """
        The options of the program that was chosen on the command line.

        :raises SystemExit: a library is missing.
        """
        from twisted_exec.program.handover.predecessor import find_predecessor

        end_on_interrupt()
        find_predecessor()
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
    End the process on SIGINT without a traceback, and ignore SIGUSR2 until the program runs.

    Does nothing if the process has a reactor, which belongs to another program.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if "twisted.internet.reactor" in sys.modules:
        return
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
        # It would end a program that is not ready yet to be replaced.
        signal.signal(signal.SIGUSR2, lambda *_: None)


def stop_on_interrupt(reactor: Any) -> None:
    """Stop a reactor on SIGINT, also before it runs; call this after :func:`end_on_interrupt`."""

    def stop(number: int, frame: Any) -> None:
        # A second stop would be an error; the handler for signals during the stop comes with the stop.
        signal.signal(number, lambda *_: None)
        reactor.sigInt(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, stop)

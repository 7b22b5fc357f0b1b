"""Signals that a run of the tests may have been told to ignore: by ``nohup``, or in the background."""

from __future__ import annotations

import signal

from twisted.trial.unittest import SynchronousTestCase

_USUAL = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def hear_signals(case: SynchronousTestCase) -> None:
    """Have none of them ignored until ``case`` is over, here and in what it starts."""
    for number, usual in _USUAL.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            case.addCleanup(signal.signal, number, signal.signal(number, usual))

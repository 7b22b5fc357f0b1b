"""
``kubectl console NAME``: the serial console of a machine, in this terminal.

kubectl runs ``kubectl-console`` in ``PATH`` with the arguments after the plugin's name.  Errors of
the command line are reported before the slow imports (Twisted, TLS).
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from twisted_exec.cli.console.options import Parser, failure_code, is_fleet, parse_options
from twisted_exec.cli.messages import output_failure, say


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the program; return the exit code.

    :param argv: the arguments, without the program's name.
    """
    # The garbage collector takes a tenth of the start-up time, and imports create no cycles to collect.
    gc.disable()
    # autobahn's compiled parts parse their C declarations at each start, another
    # tenth, and a client uses none of them.
    os.environ.setdefault("AUTOBAHN_USE_NVX", "0")
    try:
        open_standard_descriptors()
        arguments = sys.argv[1:] if argv is None else argv
        Parser.failure_code = failure_code(arguments)
        return _run(parse_options(arguments))
    except BrokenPipeError:  # --help | head
        return 1
    except OSError as error:  # --help > /dev/full
        if not (why := output_failure(error)):
            raise
        say(f"kubectl console: {why}")
        return Parser.failure_code


def open_standard_descriptors() -> None:
    """Open standard descriptors that are closed; otherwise sockets would get their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def _run(options: argparse.Namespace) -> int:
    # Here, and not above: most of the client is slow to import.
    if is_fleet(options):
        from twisted_exec.cli.fleet import start

        return start.run(options)
    if options.ssh_config:
        from twisted_exec.cli.ssh import config

        return config.run(options)
    if options.web:
        from twisted_exec.cli.commands import web

        gc.enable()  # it runs for hours
        options.port, options.no_browser = 0, False
        return web.run(options)
    from twisted_exec.cli.console import machine

    return machine.run(options)

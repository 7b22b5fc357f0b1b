"""
``twisted-exec doctor``: options and output.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from twisted_exec.cli import runner
from twisted_exec.cli.console.connecting import ProgressLine
from twisted_exec.cli.doctor.findings import Findings, Unusable
from twisted_exec.cli.doctor.machine_checks import check_machine
from twisted_exec.cli.doctor.server_checks import (
    check_namespace,
    check_readiness,
    check_user,
    reach_server,
)
from twisted_exec.cli.failures import failed
from twisted_exec.cli.machine_options import add_machine_options, possible_dialects
from twisted_exec.cli.messages import columns_of, painter
from twisted_exec.cli.options import add_cluster_options

_DESCRIPTION = """\
Check everything that a console needs, from the kubeconfig to the machine's line, and say what is
wrong and what to do. The console is opened as an observer, which changes nothing. Without MACHINE
the checks end at the API server.
"""
_EPILOG = "Exit code: 0 if a console can be opened, 1 if a check found an error."

_TIMEOUT_SECONDS = 10.0

_NO_MACHINE = "no machine is given, so rights, machine, pool and console are not checked; type twisted-exec doctor MACHINE"


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``doctor``."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_machine_options(parser, is_optional=True)
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s"
    )
    add_cluster_options(parser, limit=f"{_TIMEOUT_SECONDS:.0f}s")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        options.among = possible_dialects(options)
    except ValueError as problem:
        return failed("doctor", str(problem))
    return runner.run_in_reactor("doctor", lambda reactor: _examine(options, reactor))


async def _examine(options: argparse.Namespace, reactor: Any) -> int:
    name = options.machine.name if options.machine else ""
    report = Findings(name)

    def waiting(seconds: int) -> str:
        done = ", ".join(dict.fromkeys(finding.check for finding in report.findings))
        return f"waiting for an answer, {seconds} s; checked so far: {done or 'nothing'}"

    progress = ProgressLine.on_stderr(reactor, waiting)
    seconds = options.request_timeout or _TIMEOUT_SECONDS
    try:
        server = await reach_server(options, reactor, report, seconds)
        client = server.client()
        try:
            user = await check_user(server, client)
            await check_readiness(server)
            if name:
                await check_machine(server, client, name, options.among, user)
            else:
                await check_namespace(server, client)
                report.skipped("machine", _NO_MACHINE)
        finally:
            await client.close()
    except Unusable:
        pass  # the report has the error
    finally:
        if progress is not None:
            progress.stop()
    text = (
        report.json()
        if options.output == "json"
        else report.text(painter(sys.stdout), columns_of(sys.stdout))
    )
    sys.stdout.write(text)
    return 0 if report.is_healthy else 1

"""``twisted-exec web`` and ``kubectl console --web``."""

from __future__ import annotations

import argparse
from typing import Any

from twisted_exec.api.status import APIError
from twisted_exec.cli.failures import failed
from twisted_exec.cli.machine_options import add_machine_options
from twisted_exec.cli.options import add_cluster_options
from twisted_exec.cli.runner import run_with_machine
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.tls.errors import TLSConfigError

_DESCRIPTION = """\
Serve the web console on this computer, with the credentials of your kubeconfig, and open it in your browser: machines,
terminals, logs, screens, recordings, sessions and alerts. Nothing has to be installed in the cluster. Only this user
can use the page: its URL has a secret, which works once and for 30 seconds. Enter shows a new URL, Ctrl-C ends the
command and the terminals that are open in the page.
"""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``web``."""
    parser.description = _DESCRIPTION
    add_machine_options(parser, is_optional=True)
    add_web_options(parser)
    add_cluster_options(parser, limit="10s, and 60s for the answer")
    parser.set_defaults(run=run)


def add_web_options(parser: argparse._ActionsContainer) -> None:
    """Add ``--port`` and ``--no-browser``."""
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        help="port on 127.0.0.1 (default: a free one)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the URL, and do not open a browser"
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f'"{text}" is not a port, 0 to 65535')
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the command until Ctrl-C; return the exit code."""
    return run_with_machine("web", options, _serve)


async def _serve(options: argparse.Namespace, reactor: Any) -> int:
    # Not for --help, nor completion: the page needs most of a server.
    from twisted_exec.cli.web.program import serve

    try:
        await serve(options, reactor)
    except (KubeConfigError, TLSConfigError) as problem:
        return failed("web", str(problem))
    except APIError as refusal:
        return failed("web", refusal.message)
    return 0

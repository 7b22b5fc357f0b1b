"""
``twisted-exec screen``: options, and the run in a reactor.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any

from twisted_exec.api.screens import ScreenForm, ScreenOptions
from twisted_exec.api.status import APIError
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import failed
from twisted_exec.cli.machine_options import add_machine_options
from twisted_exec.cli.options import add_cluster_options, config_of
from twisted_exec.cli.runner import run_with_machine
from twisted_exec.cli.suggestion import explain_with_hint
from twisted_exec.cli.times import since_time
from twisted_exec.kube.downloads import read_screen
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.tls.errors import TLSConfigError

_DESCRIPTION = """\
Print what a terminal would show of a machine's console, now or earlier. The viewers at the console are not told,
and the machine may be off. The size is that of the terminal that was last used at the console.
"""
_TIMEOUT_SECONDS = 30.0
_POWER_SECONDS = 5.0
_AGENT = "twisted-exec screen"

_CONTROL = re.compile(r"\x1b\[(?:[\d;]*[mH]|2J|\?25[hl])|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""The sequences that draw a screen, and all control characters but tabs and newlines."""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``screen``."""
    parser.description = _DESCRIPTION
    add_machine_options(parser)
    parser.add_argument(
        "--at",
        metavar="TIME|OFFSET",
        type=_at,
        help="the screen this long ago, such as 10m, or at a time such as 2026-11-20T08:00:00Z (2026-11-20 08:00 "
        "is of this host's time zone), or behind this many bytes of output",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "-o",
        "--output",
        metavar="FORM",
        choices=[str(form) for form in ScreenForm],
        default=str(ScreenForm.TEXT),
        help="text, json, svg, or ansi: escape sequences that draw the screen",
    )
    forms.add_argument("--svg", metavar="FILE", help="write a picture to this file")
    add_cluster_options(parser)
    parser.set_defaults(run=_run)


def _at(text: str) -> ScreenOptions:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return ScreenOptions(at_offset=int(text))
    at = since_time(text)
    if at > time.time_ns():
        raise argparse.ArgumentTypeError(
            f'"{text}" is in the future by the clock of this host; without --at the screen is that of now'
        )
    return ScreenOptions(at_nanoseconds=at)


def screen_options(options: argparse.Namespace) -> ScreenOptions:
    """Return the options of the request."""
    at: ScreenOptions = options.at or ScreenOptions()
    form = ScreenForm.SVG if options.svg else ScreenForm(options.output)
    return ScreenOptions(at.at_offset, at.at_nanoseconds, form)


def printable(screen: bytes, form: ScreenForm) -> bytes:
    """
    Return a screen without what may harm the user's terminal.

    :param form: in ``ansi`` the sequences that draw stay; the other forms have none.
    """

    def kept(found: re.Match[str]) -> str:
        return found[0] if form is ScreenForm.ANSI and len(found[0]) > 1 else ""

    return _CONTROL.sub(kept, screen.decode("utf-8", "replace")).encode()


def _run(options: argparse.Namespace) -> int:
    return run_with_machine("screen", options, _print_screen)


async def _print_screen(options: argparse.Namespace, reactor: Any) -> int:
    try:
        config = config_of(options)
        screen = await read_screen(
            config,
            config.namespace,
            options.machine.name,
            screen_options(options),
            reactor,
            among=options.among,
            timeout_seconds=options.request_timeout or _TIMEOUT_SECONDS,
            agent=_AGENT,
        )
        if options.svg:
            with open(options.svg, "wb") as file:
                file.write(screen)
        else:
            sys.stdout.buffer.write(printable(screen, ScreenForm(options.output)))
            sys.stdout.buffer.flush()
            if not options.at and await _is_off(options, config, reactor):
                name = options.machine.name
                print(
                    f"twisted-exec screen: {name} is powered off; this is its last screen",
                    file=sys.stderr,
                )
            elif not screen.strip():
                doctor = f"twisted-exec doctor {options.machine.name} -n {config.namespace}"
                why = f"; {doctor} says whether the machine is on"
                if options.at:
                    why = ": the machine had printed nothing by then, or its journal begins later"
                print(f"twisted-exec screen: the screen is empty{why}", file=sys.stderr)
    except (KubeConfigError, TLSConfigError) as problem:
        return failed("screen", str(problem))
    except APIError as refusal:
        name, act = options.machine.name, "read the screen of"
        return failed("screen", await explain_with_hint(refusal, config, name, reactor, act))
    except BrokenPipeError:  # twisted-exec screen ... | head
        return 1
    except OSError as problem:
        if options.svg is None:
            raise  # standard output
        return failed("screen", f"cannot write {options.svg}: {problem.strerror}")
    return 0


async def _is_off(options: argparse.Namespace, config: ClientConfig, reactor: Any) -> bool:
    """Return whether a machine's power is Off; false if the user may not read the machine."""
    client = CommandClient(config, reactor, timeout_seconds=_POWER_SECONDS, agent=_AGENT)
    try:
        for dialect in options.among:
            try:
                name, namespace = options.machine.name, config.namespace
                machine = await client.get(dialect.workload, name, namespace)
            except APIError:
                continue
            return bool((machine.get("spec") or {}).get("power") == "Off")
        return False
    finally:
        await client.close()

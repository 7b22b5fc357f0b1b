"""Run what a user types in the reactor of the tests."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from twisted_exec.cli import runner as asking
from twisted_exec.cli.commands.registry import make_parser


async def typed(test: TestCase, *words: str) -> tuple[int, str, str]:
    """
    A command that asks an API server.

    :return: exit code, standard output and standard error.
    """
    asked: list[Any] = []
    test.patch(asking, "run_in_reactor", lambda command, begun, code=1: asked.append(begun))
    options = make_parser().parse_args(words)
    options.run(options)
    written, stderr = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(written, "utf-8", "surrogateescape", newline="", write_through=True)
    with redirect_stdout(stdout), redirect_stderr(stderr):
        code = await asked[0](reactor)
    return code, written.getvalue().decode("utf-8", "surrogateescape"), stderr.getvalue()

"""
Tries every client that is here, and writes what was found into the documentation.

``python -m tests.clients.matrix`` writes ``docs/reference/clients.rst``.  It needs every
client, those of :mod:`tests.interop` too, and writes nothing when a cell
did not work.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.task import react

from tests import needs

from . import kubectl, scripts
from .client import Client
from .place import Chain
from .table import Row, render, render_versions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "clients.rst"
COMMAND = "python -m tests.clients.matrix"

AT_ONCE = 3
"""Rows at a time: most of a row is waiting."""

_PAGE = """\
.. Written by ``{command}``: change it there.

Clients
=======

This page shows which features of the API server work with unmodified clients: kubectl in several
versions, client libraries and a browser.  Each cell was tested with a process of that client
against ``exec-standalone`` and a shell in a pseudo-terminal.  ``tox -e interop -- clients`` repeats the
tests and compares the results; the test suite does so for one kubectl and Python's ``kubernetes``.
kubectl 1.20 is Debian's; the last kubectl is the newest release, built from its Go modules.

Generators make clients for other languages of the OpenAPI documents, such as
``/openapi/v3/apis/compute.ironcore.dev/v1alpha1``.  The names, parameters and responses of their
operations are those of kube-apiserver's documents, with one difference in version 3: a delete
returns a ``Status`` *or* the object, which stays until its finalizers are removed.  The suite
``generated_clients`` tests clients of openapi-generator in Python and Go; their patches are merge
patches unless the program chooses another content type.  They open no streams.

{table}
The columns
-----------

get
    Reads a list, one object and one field of it, of machines and of the Pods that represent
    them.
watch
    Receives a change of a machine when it happens.
apply
    The client creates an object, changes it, and applies it again without a change.
server-side apply
    A second manager gets a conflict, and takes the field over by force.
explain
    Shows the fields of a machine and of a Pod, from OpenAPI.
can-i
    Answers yes for a user who may open the console and no for a user who may not.
attach, exec
    Opens a machine's console as that of a Pod, with ``console`` as the command: sends input and
    reads the answer, in a terminal if the client has one.
logs -f
    Shows earlier output, then new output as it is printed.
console
    Runs ``kubectl console`` at a terminal and leaves by its escape key.
stdin EOF
    After the end of input, the attachment ends with success once there was no output for two
    seconds; the machine and its other viewers continue.  Tested for every command of the client
    that opens a console.
resize
    The machine's terminal takes the size of the client's window.
exit status
    When the process exits with 7, every viewer ends with ``NonZeroExitCode`` 7, and a kubectl
    exits with 7.  Tested for every command of the client that opens a console.

Tested versions
---------------

{versions}
"""


async def find(clients: Sequence[Client]) -> tuple[list[Row], list[str]]:
    """
    Try them, on one chain.

    :return: a row for each, in their order, and what did not work.
    """
    chain, turns = Chain(), DeferredSemaphore(AT_ONCE)
    failures: list[str] = []

    async def row(number: int, client: Client) -> Row:
        return await client.attempt(await chain.place(f"client-{number}"), failures)

    def in_turn(number: int, client: Client) -> Deferred[Row]:
        return turns.run(lambda: Deferred.fromCoroutine(row(number, client)))

    try:
        await chain.start()
        rows = await gatherResults(
            [in_turn(*one) for one in enumerate(clients)], consumeErrors=True
        )
    finally:
        await chain.stop()
    return list(rows), failures


def page(rows: Sequence[Row], date: str) -> str:
    """The whole page."""
    versions = render_versions(rows, date)
    return _PAGE.format(command=COMMAND, table=render(rows), versions=versions).rstrip() + "\n"


async def _main() -> None:
    missing = [
        reason
        for need in (
            needs.kubectl,
            needs.oldest_kubectl,
            needs.newest_kubectl,
            needs.javascript,
            needs.chromium,
            needs.kube_rs,
            needs.fabric8,
        )
        if (reason := need())
    ]
    if missing:
        raise SystemExit("\n".join(missing))
    kubectls = [*await kubectl.oldest(), *await kubectl.found(), *await kubectl.newest()]
    clients = [*kubectls, *scripts.found(), *scripts.browsers(), *scripts.built()]
    rows, failures = await find(clients)
    text = page(rows, datetime.now(UTC).strftime("%Y-%m-%d"))
    if failures:
        raise SystemExit("\n\n".join([text, *failures]))
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    # wait: a program, which runs the reactor for its own work
    react(lambda reactor: Deferred.fromCoroutine(_main()))

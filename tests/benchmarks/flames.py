"""
Flame graphs of API server and poollet, by ``py-spy``, while consoles are opened and while keys are typed.

``python -m tests.benchmarks flames DIRECTORY`` writes ``apiserver-open.svg``, ``apiserver-key.svg`` and the
same of ``poollet``.  A graph shows the time in which a thread worked, system calls included, by Python
function.  It names no place of this machine, and is small enough for the documentation: frames below
:data:`LEAST_PERCENT` are left out.
"""

from __future__ import annotations

import html
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .chain import QUIET, Chain, run, with_chain

HOPS = {"api": "apiserver", "poollet": "poollet"}
SECONDS = 20
RATE = 250
WARM = 20
LEAST_PERCENT = 0.25
_CHARACTERS = 158
"""In the width of the graph."""

_FRAME = re.compile(
    r"<g><title>(?P<title>[^<]*, (?P<percent>[\d.]+)%\))</title>(?P<box><rect [^>]*/>)"
    r"(?P<text><text [^>]*>)[^<]*</text></g>"
)
_INSTALLED = re.compile(r"\(/[^)]*/(?:site-packages|dist-packages|python3[.\d]*)/")
_ELSEWHERE = re.compile(r"\(/[^)]*/([^/)]+\))")
_HEADING = re.compile(r'(<text id="title"[^>]*>)[^<]*')


def cleaned(graph: str, title: str) -> str:
    """
    Return a graph of ``py-spy`` for readers on other machines.

    Files are named from their package on.  Frames have their text, as in a viewer that runs no scripts.

    :param title: replaces the command line of ``py-spy``.
    """

    def frame(match: re.Match[str]) -> str:
        percent = float(match["percent"])
        if percent < LEAST_PERCENT:
            return ""
        name = _ELSEWHERE.sub(r"(\1", _INSTALLED.sub("(", match["title"]))
        label, room = html.unescape(name), int(percent / 100 * _CHARACTERS)
        if len(label) > room:
            label = label[: room - 2] + ".." if room > 3 else ""
        text = html.escape(label, quote=False)
        return f"<g><title>{name}</title>{match['box']}{match['text']}{text}</text></g>"

    escaped = html.escape(title, quote=False)
    return _HEADING.sub(lambda match: match[1] + escaped, _FRAME.sub(frame, graph)) + "\n"


def record(pid: int, path: Path, title: str, work: Callable[[], None]) -> None:
    """
    Write the graph of a process that is kept at work.

    :raises PermissionError: ``py-spy`` may not read the process; its message is the text.
    """
    raw, messages = path.with_suffix(".raw"), path.with_suffix(".messages")
    options = ["--duration", str(SECONDS), "--rate", str(RATE), "--function", "--output", str(raw)]
    with messages.open("wb") as file:
        recorder = subprocess.Popen(
            ["py-spy", "record", "--pid", str(pid), *options], stdout=file, stderr=file
        )
    try:
        while recorder.poll() is None:
            work()
    finally:
        recorder.kill()
        recorder.wait()
    if recorder.returncode or not raw.exists():
        raise PermissionError(messages.read_text().strip())
    path.write_text(cleaned(raw.read_text(), title))
    raw.unlink()
    messages.unlink()


def measure(chain: Chain, directory: Path) -> None:
    """Record one hop and kind of work after the other."""
    run(chain.through(QUIET), b"cat")
    console = chain.through(QUIET)
    console.until(b"BEGIN\n")

    def key() -> None:
        console.type(b"x")
        console.receive()

    def opening() -> None:
        opened = chain.through(QUIET)
        opened.receive()
        opened.close()

    directory.mkdir(parents=True, exist_ok=True)
    works = {"open": ("consoles that are opened and closed", opening), "key": ("keys", key)}
    for hop, program in HOPS.items():
        for name, (subject, work) in works.items():
            for _ in range(WARM):
                work()
            path = directory / f"{program}-{name}.svg"
            title = f"{program}: {subject} (Python {platform.python_version()})"
            record(chain.pid(hop), path, title, work)
            print(f"{path}: {path.stat().st_size >> 10} KiB", flush=True)


def main(directory: Path, *words: str) -> None:
    """Record all graphs, or say what is missing."""
    if len(words) != 1:
        print("flames: name a directory for the graphs; nothing is recorded.")
        return
    if shutil.which("py-spy") is None:
        print("flames: py-spy is not on PATH (pip install py-spy); nothing is recorded.")
        return

    try:
        with_chain(directory, lambda chain: measure(chain, Path(words[0])), QUIET)
    except PermissionError as problem:
        print(f"flames: {problem}")

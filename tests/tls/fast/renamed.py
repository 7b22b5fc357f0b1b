"""
A process whose libraries have other private names: ``renamed.py [NAME PACKAGE ...]``.

It renames ``NAME`` in all modules of the packages, as a release of them might, and opens two consoles through a
chain of servers, with the loop of a program.  It prints the warnings of the fast parts, one a line.
"""

from __future__ import annotations

import re
import sys
import unittest
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

PREFIX = "renamed_"


class _Loader(SourceFileLoader):
    """Loads a module with another name in it."""

    renamed = ""

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        changed = re.sub(rf"\b{self.renamed}\b", PREFIX + self.renamed, source)
        return self.source_to_code(changed.encode(), self.path)


class Renaming(MetaPathFinder):
    """Finds the modules of packages whose source has a name."""

    def __init__(self, name: str, packages: Sequence[str]) -> None:
        self._name, self._packages = name, packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        found = spec.loader if spec is not None else None
        if isinstance(found, SourceFileLoader) and self._name in (found.get_source(fullname) or ""):
            assert spec is not None
            spec.loader = loader = _Loader(found.name, found.path)
            loader.renamed = self._name
        return spec


class _Library:
    """OpenSSL's functions, one of which has another name."""

    def __init__(self, library: Any, name: str) -> None:
        self._library, self._name = library, name

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            raise AttributeError(name)
        return getattr(self._library, name.removeprefix(PREFIX))


def rename(name: str, packages: Sequence[str]) -> None:
    """
    Rename in modules that are imported later, and in OpenSSL's functions.

    :raises RuntimeError: a module of a package is imported already.
    """
    if imported := {each.partition(".")[0] for each in sys.modules}.intersection(packages):
        raise RuntimeError(f"imported before the name was changed: {imported}")
    sys.meta_path.insert(0, Renaming(name, packages))
    if name.startswith("SSL_"):
        from cryptography.hazmat.bindings.openssl.binding import Binding

        Binding.lib = _Library(Binding.lib, name)


def main(name: str = "", *packages: str) -> int:
    if name:
        rename(name, packages)
    from twisted.internet import reactor
    from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

    from twisted_exec.tls.fast import names
    from twisted_exec.tls.fast.loop import shorten_turns

    def warned(event: LogEvent) -> None:
        if event.get("log_namespace") == names.__name__ and event["log_level"] >= LogLevel.warn:
            print(formatEvent(event), flush=True)

    observer: Any = warned
    globalLogPublisher.addObserver(observer)
    shorten_turns(reactor)
    from tests.tls.fast.consoles import ConsoleTests

    suite = unittest.TestSuite([ConsoleTests("test_consoles")])
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

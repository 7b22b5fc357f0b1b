"""
Directives that document the public modules: ``public-api`` and ``submodules``.

autodoc does not know zope interfaces, which are instances and have no ``self``: their methods and
attributes are written out here as reStructuredText, from the interface itself.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from zope.interface import Attribute
from zope.interface.interface import InterfaceClass, Method


def _indented(text: str | None, indent: str) -> Iterator[str]:
    for line in inspect.cleandoc(text or "").splitlines():
        yield f"{indent}{line}" if line else ""


def _interface(module: str, name: str, interface: InterfaceClass) -> Iterator[str]:
    """Return an interface as a ``py:class`` with its own methods and attributes."""
    yield f".. py:class:: {module}.{name}"
    yield ""
    bases = [base.__name__ for base in interface.__bases__ if base.__name__ != "Interface"]
    if bases:
        yield f"   Extends {', '.join(f':py:class:`{base}`' for base in bases)}."
        yield ""
    yield from _indented(interface.__doc__, "   ")
    yield ""
    for member, description in sorted(interface.namesAndDescriptions()):
        if isinstance(description, Method):
            yield f"   .. py:method:: {member}{description.getSignatureString()}"
        elif isinstance(description, Attribute):
            yield f"   .. py:attribute:: {member}"
        else:
            continue
        yield ""
        yield from _indented(description.__doc__, "      ")
        yield ""


def _title(text: str) -> Iterator[str]:
    yield from (f".. rubric:: {text}", "")


class PublicAPI(SphinxDirective):
    """``.. public-api:: MODULE``: all that ``MODULE.__all__`` names, grouped by kind."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        return self._parsed(_public(module))

    def _parsed(self, lines: Iterator[str]) -> list[nodes.Node]:
        parent = nodes.section()
        parent.document = self.state.document
        self.state.nested_parse(StringList(list(lines), source=self.arguments[0]), 0, parent)
        return parent.children


def _public(module: ModuleType) -> Iterator[str]:
    members = {name: getattr(module, name) for name in sorted(module.__all__)}
    interfaces = {n: m for n, m in members.items() if isinstance(m, InterfaceClass)}
    classes = {n: m for n, m in members.items() if isinstance(m, type)}
    yield from _title("Interfaces")
    for name, interface in interfaces.items():
        if interface.__name__ != name:
            yield from (f".. py:data:: {module.__name__}.{name}", "")
            yield from (f"   Old name of :py:class:`{interface.__name__}`.", "")
            continue
        yield from _interface(module.__name__, name, interface)
    yield from _title("Values and errors")
    for name, cls in classes.items():
        if cls.__name__ != name:
            yield from (f".. py:data:: {module.__name__}.{name}", "")
            yield from (f"   Old name of :py:class:`{cls.__name__}`.", "")
            continue
        yield from (f".. autoclass:: {module.__name__}.{name}", "   :members:", "")
    functions = {n: m for n, m in members.items() if inspect.isfunction(m)}
    yield from _title("Functions")
    for name in functions:
        yield from (f".. autofunction:: {module.__name__}.{name}", "")
    yield from _title("Constants")
    for name in members.keys() - interfaces.keys() - classes.keys() - functions.keys():
        yield from (f".. py:data:: {module.__name__}.{name}", f"   :value: {members[name]!r}", "")


class Submodules(PublicAPI):
    """``.. submodules:: PACKAGE``: the classes and functions of each module of a package."""

    def run(self) -> list[nodes.Node]:
        package = importlib.import_module(self.arguments[0])
        names = sorted(each.name for each in pkgutil.iter_modules(package.__path__))
        return self._parsed(
            line
            for name in names
            for line in (
                *_title(f"{package.__name__}.{name}"),
                f".. automodule:: {package.__name__}.{name}",
                "   :members:",
                "",
            )
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("public-api", PublicAPI)
    app.add_directive("submodules", Submodules)
    return {"parallel_read_safe": True}

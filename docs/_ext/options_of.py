"""
The directive ``options-of``: an overview of the options on another page.

Each option links to its description there. Options and commands keep the anchors of this page, which described them in earlier releases.
So old links still work.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_DIRECTIVE = re.compile(r"^\.\. (program|option):: (.+)$", re.MULTILINE)
_NOT_IN_ANCHORS = re.compile(r"[^a-zA-Z0-9._]+")


class OptionsOf(SphinxDirective):
    """``.. options-of:: DOCUMENT``: a paragraph for each command, with all its options."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        relative, path = self.env.relfn2path(f"{self.arguments[0]}.rst", self.env.docname)
        self.env.note_dependency(relative)
        self._anchored = {self.state.parent.next_node(nodes.title).astext()}
        commands: dict[str, list[str]] = {}
        for kind, argument in _DIRECTIVE.findall(Path(path).read_text(encoding="utf-8")):
            if kind == "program":
                program = argument
                commands.setdefault(program, [])
            else:
                commands[program] += [form.split()[0] for form in argument.split(", ")]
        return [self._paragraph(*command) for command in commands.items()]

    def _paragraph(self, program: str, options: list[str]) -> nodes.paragraph:
        paragraph = nodes.paragraph()
        if nodes.make_id(program) not in self.state.parent["ids"]:
            # The sections of "twisted-exec iri" and "twisted-exec iri list" were here.
            for name in (program.rpartition(" ")[0], program):
                if name not in self._anchored:
                    self._anchored.add(name)
                    paragraph["ids"].append(nodes.make_id(name))
            paragraph += [nodes.strong("", program), nodes.Text(": ")]
        for number, option in enumerate(options):
            if number:
                paragraph += nodes.Text(", ")
            link = self._link(program, option)
            paragraph += nodes.inline("", "", link, ids=[_anchor(program, option)])
        return paragraph

    def _link(self, program: str, option: str) -> addnodes.pending_xref:
        link = addnodes.pending_xref(
            "",
            nodes.literal(text=option),
            refdomain="std",
            reftype="option",
            reftarget=option,
            refdoc=self.env.docname,
            refexplicit=True,
            refwarn=True,
        )
        link["std:program"] = program.replace(" ", "-")
        return link


def _anchor(program: str, option: str) -> str:
    """Return the anchor that Sphinx makes for the description of an option."""
    kind = "" if option.startswith("-") else "arg-"
    return _NOT_IN_ANCHORS.sub("-", f"cmdoption-{program}-{kind}{option}").strip("-")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("options-of", OptionsOf)
    return {"parallel_read_safe": True}

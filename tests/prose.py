"""
``python tests/prose.py [PATH ...]``: sentences that a reader has to read twice, each with its remedy.

The check reads pages, docstrings, comments, and the strings of the product that are sentences, such as help, messages
and API descriptions.  :data:`RULES` has the patterns; ``docs/style.rst`` has examples.  A finding is a hint: a sentence
that reads well may stay.

Why neither vale nor proselint: proselint has no rules of a project's own, and vale reads no strings of a module.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLACES = ("README.md", "CONTRIBUTING.rst", "tests/README.rst", "docs", "twisted_exec")
LEFT_OUT = re.compile(
    r"docs/style\.rst$"  # It quotes sentences to avoid.
    r"|docs/newsfragments/|docs/reference/release-"  # History.
    r"|docs/_build/|_pb2\.pyi?$"
)
_PROSE_DIRECTIVE = re.compile(
    r"admonition|important|list-table|note|option|seealso|tip|versionadded|warning"
)
_SENTENCE = re.compile(
    r"(?:[^.?!]|[.?!](?![\"')*]*(?:\s+[A-Z`\"(*:]|\s*$)))+(?:[.?!]+[\"')*]*)?", re.DOTALL
)
_LITERAL = re.compile(r"``.+?``|`[^`<]+`(?!_)(?<!:`)", re.DOTALL)
_ROLE = re.compile(r":[\w:]+:`([^`<]*?)(?:\s*<[^`>]*>)?`", re.DOTALL)


class Rule(NamedTuple):
    """One pattern of sentences to avoid, with what to write instead."""

    name: str
    pattern: re.Pattern[str]
    remedy: str


RULES = (
    Rule(
        "one",
        re.compile(
            r"^(?:\w+ ){0,2}(?i:another|other|new|old|next|last|first) ones?\b(?! (?:or|of|to)\b)"
            r"|^(?:\w+ ){0,2}(?i:the|this|that|each|every) ones?\b"
            r"(?=[.,;:)]|$| (?:for|in|is|that|was|which|who|with)\b)"
            r"|(?:^|[.;:] )(?:One|Those|None) (?:that|who|which|whose|with|may|is|are|has|can)\b"
            r"|\b(?:another|other|this|such a) ones?\b"
            r"|\bthat one(?=[.,;:)']|$)"
        ),
        'name the noun instead of "one"',
    ),
    Rule(
        "subject",
        re.compile(
            r"^(?:What|Who|Whoever|Whose) (?!if\b).*[^?:]$"
            r"|; (?:what|who) (?:is|are|has|was|may|can|needs?|comes?|goes|does|stays?|waits?)\b(?!.*\?$)"
        ),
        'make the actor or the thing the subject, not "who" or "what"',
    ),
    Rule(
        "clauses",
        re.compile(
            r"(?i)(?:\b(?:that|which|who|whose|whom|where|when|while|if|unless|because|although|since"
            r"|until|whether)\b[^.;:]*?){3}"
        ),
        "divide the sentence: it has three subordinate clauses",
    ),
    Rule(
        "denial",
        re.compile(
            r"\b[Nn]ot (?!only\b)[^.;:(),]{1,80} but (?:in|on|by|for|of|at|from|to|with|as|a|the|its)\b"
            r"|\b[Nn]ot (?!only\b)[^.;:(),]{1,80}, but (?:in|on|by|for|of|at|from|to|with|as)\b"
        ),
        "say first what is, then what is not",
    ),
    Rule(
        "abstract",
        re.compile(
            r"\b(?:in|short|long|of|its) turns\b(?! of)"
            r"|\bthe (?!day|week|month|year)\w+ before(?=[.,;)]|$)"
        ),
        'name the thing: "turns of the reactor", "the previous event"',
    ),
)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """
    Yield the paragraphs of reStructuredText or Markdown, each with its line.

    Headings, comments, literal blocks and tables with borders are left out.
    """
    paragraph: list[str] = []
    start = indent_of_first = 0
    literal: int | None = None  # The indent of what introduces it: the literal is deeper.
    fenced = table = False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        item = re.match(r"(?:[*-] +)+(?=\S)|\d+\. +|:[a-z]+[^:`]*:(?= |$)", bare)
        directive = re.match(r"\.\. ([\w-]*)(::)?", bare)
        border = re.fullmatch(r"[=+|-][=+| -]{3,}|([-=~^\"'#])\1{2,}", bare)
        fence = bare.startswith("```")
        term = len(paragraph) == 1 and indent > indent_of_first
        if paragraph and (not bare or item or directive or border or fence or term):
            if not border:
                yield start, "\n".join(paragraph)
                if paragraph[-1].endswith("::"):
                    literal = indent_of_first
            paragraph = []
        if fence:
            fenced = not fenced
        if border:
            table = " " in bare
        if bare and literal is not None and indent <= literal:
            literal = None
        if not bare:
            table = False
        elif directive and literal is None:
            if not (directive[2] and _PROSE_DIRECTIVE.fullmatch(directive[1])):
                literal = indent
        elif not (border or fence or fenced or table or literal is not None):
            if not paragraph:
                start = number
                indent_of_first = len(line) if item else indent  # An item's next lines are deeper.
                if item and bare[item.end() :].endswith("::"):
                    indent_of_first = indent
            paragraph.append(bare[item.end() :].lstrip() if item else bare)


def sentences(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a text that starts at a line, each with its own; literals become X."""
    for start, paragraph in blocks(text):
        plain = _ROLE.sub(lambda role: role[1] or "X", paragraph)
        plain = _LITERAL.sub(lambda literal: "X" + "\n" * literal[0].count("\n"), plain)
        for match in _SENTENCE.finditer(plain):
            if sentence := " ".join(match[0].split()):
                before = match.start() + len(match[0]) - len(match[0].lstrip())
                yield line + start - 1 + plain.count("\n", 0, before), sentence


def module_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a module's docstrings, messages (strings of five words) and comments."""
    seen: set[ast.AST] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(document)) as value):
                seen.add(value)
                first, _, rest = document.partition("\n")
                margin = min(
                    (len(row) - len(row.lstrip()) for row in rest.split("\n") if row.strip()),
                    default=0,
                )
                rows = [first, *(row[margin:] for row in rest.split("\n"))]
                yield from sentences("\n".join(rows), node.lineno)
                continue
            case ast.JoinedStr(values=values):
                seen.update(values)
                message = "".join(
                    str(value.value) if isinstance(value, ast.Constant) else "X" for value in values
                )
            case ast.Constant(value=str(message)) if node not in seen:
                pass
            case _:
                continue
        if len(re.findall(r"[A-Za-z]{2,}", message)) >= 5:
            yield from sentences(message, node.lineno)
    comment: list[str] = []
    for number, row in enumerate([*text.split("\n"), ""], 1):
        if whole := re.match(r"\s*# ?(.*)", row):
            comment.append(whole[1])
            continue
        yield from sentences("\n".join(comment), number - len(comment))
        comment = []
        if trailing := re.search(r"  # (?!noqa|type:|pragma)([^'\"]*)$", row):
            yield number, trailing[1]


def findings(text: str, *, module: bool = False) -> Iterator[tuple[int, str, Rule]]:
    """Yield line, sentence and rule for each sentence of a page, or of a module, that a rule finds."""
    for line, sentence in (module_sentences if module else sentences)(text):
        for rule in RULES:
            if rule.pattern.search(sentence):
                yield line, sentence, rule


def main(arguments: list[str]) -> int:
    """Print the findings of all places, or of the arguments, and their number."""
    for argument in arguments:
        place = ROOT / argument
        if not (place.exists() and place.is_relative_to(ROOT)):
            print(f"{argument}: no file or directory of {ROOT}: paths are relative to it")
            return 2
    count = 0
    for place in arguments or PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = str(file.relative_to(ROOT))
            if file.suffix in {".md", ".py", ".rst"} and not LEFT_OUT.search(name):
                text = file.read_text(encoding="utf-8")
                for line, sentence, rule in findings(text, module=file.suffix == ".py"):
                    print(f"{name}:{line}: {rule.name}: {rule.remedy}\n    {sentence}")
                    count += 1
    print(f"{count} findings")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""
The rules of :mod:`tests.prose`, and what it reads.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from twisted.trial.unittest import SynchronousTestCase

from tests import prose

PAGE = """
What a heading is
=================

A reader sees this.  One that ends
is started again.

* What needs it is answered:

  .. code-block:: text

     What a literal is.

.. note::

   The server asks ``not X but Y``.

.. What a comment is.

A text::

   What a literal is.

=======  ===========
column   What it is.
=======  ===========

term
   What it means.
"""

MODULE = '''
"""
What the module is.

:param data: the bytes of another one.
"""

def f(user):
    # What the comment
    # is about.
    x = 1  # the reply before
    raise ValueError(
        f"{user} may open a console that is closed when a user who waits leaves"
    )

WORDS = "the turn before"
'''


def names(sentence: str) -> list[str]:
    """Return the names of the rules that find a sentence."""
    return [rule.name for _, _, rule in prose.findings(sentence)]


class RulesTests(SynchronousTestCase):
    """Each rule finds its pattern, and leaves good sentences alone."""

    def test_one(self) -> None:
        """The word "one" needs its noun; a noun after it, and one that the same sentence names, are fine."""
        for text in (
            "One that ends by itself is started again at once.",
            "The last one is kept.",
            "Press Enter in the terminal for another one.",
            "Those who wait come first.",
        ):
            self.assertEqual(names(text), ["one"], text)
        for text in (
            "One server answers.",
            "Each one of the servers answers.",
            "The one line says so.",
            "The page shows that one server answers.",
            "The server keeps the new key and deletes the old one.",
        ):
            self.assertEqual(names(text), [], text)

    def test_subject(self) -> None:
        """The words "who" and "what" are no subjects, except in questions and before what is listed."""
        for text in (
            "What needs it is answered with 503.",
            "Who changes objects comes between a draft and its rules.",
            "The head is signed; what is newer waits.",
        ):
            self.assertEqual(names(text), ["subject"], text)
        for text in ("What is a space?", "What it does:", "The page says what is wrong."):
            self.assertEqual(names(text), [], text)

    def test_clauses(self) -> None:
        """Three subordinate clauses are too many, unless a semicolon or a colon divides them."""
        self.assertEqual(
            names("If a session that waits ends, the server that has it answers."), ["clauses"]
        )
        for text in (
            "If the session that waits ends, the server answers.",
            "If a session ends, the server closes it; the client that waits leaves when it reads it.",
        ):
            self.assertEqual(names(text), [], text)

    def test_denial(self) -> None:
        """A sentence says first what is."""
        for text in (
            "The kind is not a constant but a function.",
            "The bytes are not on disk, but in memory.",
        ):
            self.assertEqual(names(text), ["denial"], text)
        for text in (
            "The kind is a function, not a constant.",
            "Servers must not mask, but such frames have boundaries.",
            "It is not only a proxy but a server.",
        ):
            self.assertEqual(names(text), [], text)

    def test_abstract(self) -> None:
        """Turns and "the hop before" need their noun."""
        for text in ("The work is done in short turns.", "The address comes from the hop before."):
            self.assertEqual(names(text), ["abstract"], text)
        for text in (
            "Short turns of the reactor do the work.",
            "The hop before it has the address.",
            "It ended the day before.",
        ):
            self.assertEqual(names(text), [], text)


class SourcesTests(SynchronousTestCase):
    """The check reads what people read, and gives its line."""

    def test_page(self) -> None:
        """Paragraphs, items and notes are read; headings, literals, comments and tables are not."""
        self.assertEqual(
            [(line, rule.name) for line, _, rule in prose.findings(PAGE)],
            [(5, "one"), (29, "subject")],
        )
        self.assertEqual(
            [text for _, text in prose.sentences(PAGE)],
            [
                "A reader sees this.",
                "One that ends is started again.",
                "What needs it is answered:",
                "The server asks X.",
                "A text::",
                "term",
                "What it means.",
            ],
        )

    def test_markdown(self) -> None:
        """Fenced blocks are literals."""
        text = "# Title\n\nOne is first.\n\n```console\n$ What is it.\n```\n\nOne has it.\n"
        self.assertEqual([line for line, _, _ in prose.findings(text)], [3, 9])

    def test_roles(self) -> None:
        """A role reads as its text."""
        text = "See :doc:`the page </a/page>` and :class:`~a.B`."
        self.assertEqual([*prose.sentences(text)], [(1, "See the page and ~a.B.")])

    def test_module(self) -> None:
        """Docstrings, fields, comments and messages are read; short strings are not."""
        found = [(line, rule.name) for line, _, rule in prose.findings(MODULE, module=True)]
        self.assertEqual(
            sorted(found),
            [(3, "subject"), (5, "one"), (9, "subject"), (11, "abstract"), (13, "clauses")],
        )

    def test_missing_path(self) -> None:
        """A path that does not exist, or is outside the checkout, is one line and no traceback."""
        for path in ("docs/nowhere", "/etc/hostname"):
            output = io.StringIO()
            with redirect_stdout(output):
                self.assertEqual(prose.main([path]), 2)
            self.assertTrue(output.getvalue().startswith(f"{path}: no file or directory of "))

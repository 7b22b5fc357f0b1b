"""
Tests for :mod:`twisted_exec.streaming.http.responses`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import APIError, NotFound, TooManyRequests
from twisted_exec.streaming.http.responses import naming, outcome
from twisted_exec.streaming.subject import Subject

POD = Subject(session="s", machine="web", noun="pod")


class NamingTests(SynchronousTestCase):
    """Tests for :func:`naming`."""

    def test_named(self) -> None:
        """An error without the subject's name gets it as a prefix and is otherwise unchanged."""
        named = naming(TooManyRequests("too many", retry_after_seconds=3), POD)
        self.assertEqual(named.message, 'pod "web": too many')
        self.assertEqual((named.code, named.retry_after_seconds), (429, 3))

    def test_once(self) -> None:
        """
        A message with the name is unchanged; another name with the same prefix does not count.
        """
        for error in (NotFound("pods", "web"), APIError("no pod web here", code=500, reason="X")):
            self.assertIs(naming(error, POD), error)
        other = naming(APIError("pod web-2 is over", code=500, reason="X"), POD)
        self.assertEqual(other.message, 'pod "web": pod web-2 is over')

    def test_once_with_namespace(self) -> None:
        """A runtime names its machine with the namespace, which is enough."""
        pod = replace(POD, namespace="default")
        error = APIError('pod "default/web" cannot start', code=409, reason="X")
        self.assertIs(naming(error, pod), error)
        other = APIError('pod "other/web" has the line', code=409, reason="X")
        self.assertEqual(naming(other, pod).message, 'pod "web": pod "other/web" has the line')

    def test_words(self) -> None:
        """Only whole words count, and the last of several does as well as the first."""
        for message in ("spod web is over", "pod webs are over", "pod web.x is over", "pod web-2"):
            other = APIError(message, code=500, reason="X")
            self.assertEqual(naming(other, POD).message, f'pod "web": {message}')
        error = APIError("pod web-2 is over, and pod web", code=500, reason="X")
        self.assertIs(naming(error, POD), error)

    def test_no_patterns(self) -> None:
        """Names, which users choose, are not compiled: patterns are kept, and push out others."""

        def compiled(pattern: str, *_: object) -> None:
            self.fail(f"{pattern} is compiled")

        for function in ("search", "match", "compile"):
            self.patch(re, function, compiled)
        self.assertIn('"web": no', naming(APIError("no", code=500, reason="X"), POD).message)

    def test_nameless(self) -> None:
        """Without a subject no name is added."""
        error = APIError("no", code=400, reason="X")
        self.assertIs(naming(error, Subject(session="s")), error)


class OutcomeTests(SynchronousTestCase):
    """Tests for :func:`outcome`."""

    def test_kinds(self) -> None:
        """Refusals are recorded with their code, departed clients with 499 and bugs with 500."""
        told = [outcome(each) for each in (NotFound("pods", "web"), CancelledError(), KeyError())]
        wanted = [(404, 'pods "web" not found'), (499, "client closed"), (500, "internal error")]
        self.assertEqual(told, wanted)

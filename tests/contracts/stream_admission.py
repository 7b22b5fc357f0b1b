"""
Contract of every :class:`~twisted_exec.streaming.location.IStreamAdmission`.

Inherit :class:`StreamAdmissionContract` beside a trial ``TestCase`` of a hop, and implement
``ask_for`` for each of its streams. The requests are real; the calls of the admissions are recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure
from zope.interface.verify import verifyClass

from twisted_exec.api.status import APIError
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.location import IStreamAdmission, Location

_Facts = tuple[Any, ...]


@dataclass
class Located:
    """
    One call of an admission.

    :ivar before: facts of the request, which an admission must leave as they are.
    """

    context: RequestContext
    before: _Facts
    after: _Facts = ()
    result: Any = None


def _facts(context: RequestContext) -> _Facts:
    request = context.request
    headers = {name: tuple(lines) for name, lines in request.requestHeaders.getAllRawHeaders()}
    args = {name: tuple(values) for name, values in request.args.items()}
    segments, values = tuple(context.segments), dict(context.values)
    return request.method, request.uri, request.path, args, headers, segments, values


class StreamAdmissionContract:
    """
    Tests; ``self`` is a :class:`twisted.trial.unittest.TestCase`.

    :cvar admissions: the implementations, by a keyword for each.
    :cvar resuming: the keywords of those whose next hop may resume sessions.
    """

    admissions: Mapping[str, type]
    resuming: Collection[str] = ()

    async def ask_for(self, word: str, *, allowed: bool) -> None:
        """
        Request a stream that an admission has to find; the outcome does not matter.

        :param word: a key of :attr:`admissions`.
        :param allowed: as a user with permission; otherwise as a known user without it.
        """
        raise NotImplementedError

    @contextmanager
    def watched(self: Any, word: str) -> Iterator[list[Located]]:
        """Record the calls of an admission in this context."""
        kind, calls = self.admissions[word], []
        is_own, admit = "admit" in vars(kind), kind.admit

        def watch(admission: Any, context: RequestContext) -> Deferred[Location]:
            call = Located(context, _facts(context))

            def note(result: Any) -> Any:
                call.after, call.result = _facts(context), result
                return result

            calls.append(call)
            return maybeDeferred(admit, admission, context).addBoth(note)

        kind.admit = watch
        try:
            yield calls
        finally:
            # ``patch`` would turn an inherited method into one of the class itself.
            if is_own:
                kind.admit = admit
            else:
                del kind.admit

    def test_interface(self: Any) -> None:
        """Every implementation is an admission."""
        for kind in self.admissions.values():
            verifyClass(IStreamAdmission, kind)

    def finish(self: Any, test: Coroutine[Any, Any, None]) -> Any:
        """Run a test; a case without a reactor waits for nothing."""
        return Deferred.fromCoroutine(test)

    def test_allowed(self: Any) -> Any:
        """
        A location has an endpoint, a host and a path; the session's subject is known, and the
        request is unchanged.
        """
        return self.finish(self._check_allowed())

    async def _check_allowed(self: Any) -> None:
        for word in self.admissions:
            with self.watched(word) as calls:
                await self.ask_for(word, allowed=True)
            (call,) = calls
            self.assertEqual(call.after, call.before, word)
            location, context = call.result, call.context
            self.assertIsInstance(location, Location, word)
            self.assertTrue(context.subject.user, word)
            self.assertTrue(context.subject.machine, word)
            self.assertTrue(location.endpoints, word)
            self.assertTrue(location.path.startswith(b"/"), word)
            self.assertTrue(location.host, word)
            self.assertEqual(location.resumes, word in self.resuming, word)

    def test_refused(self: Any) -> Any:
        """
        A user without permission gets 403 or 404; the audit subject names the user and the object.
        """
        return self.finish(self._check_refused())

    async def _check_refused(self: Any) -> None:
        for word in self.admissions:
            with self.watched(word) as calls:
                await self.ask_for(word, allowed=False)
            (call,) = calls
            self.assertEqual(call.after, call.before, word)
            assert isinstance(call.result, Failure), word
            self.assertTrue(call.result.check(APIError), (word, call.result))
            self.assertIn(call.result.value.code, (403, 404), word)
            subject = call.context.subject
            self.assertTrue(subject.user and subject.machine and subject.resource, word)

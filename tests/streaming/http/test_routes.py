"""Tests for :mod:`twisted_exec.streaming.http.routes`."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import APIError, BadRequest, MethodNotAllowed
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.routes import Routes, split_path
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryServer


class Table(Dispatcher):
    """Answers with the name of the route and its values."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = Routes()
        for methods, pattern in (
            (["GET"], "/"),
            (["GET"], "/machines/{name}"),
            (["PUT"], "/machines/{name}"),
            (["GET"], "/machines/special"),
            (["GET", "POST"], "/machines/{name}/exec"),
            (["GET"], "/{kind}/{name}/exec"),
            (["GET"], "/version/"),
        ):
            self.add(methods, pattern)

    def add(self, methods: list[str], pattern: str) -> None:
        async def answer(request: Request, values: Mapping[str, str]) -> None:
            respond_json(request, 200, [pattern, dict(values)])

        self.routes.add(methods, pattern, answer)

    async def dispatch(self, request: Request) -> None:
        await self.routes.dispatch(request)


class RoutesTests(SynchronousTestCase):
    """Tests for :class:`Routes`."""

    def setUp(self) -> None:
        self.server = MemoryServer(Table())

    def answered(self, path: str, method: str = "GET") -> object:
        answer = self.server.request(method, path)
        return answer.json() if answer.code == 200 else answer.code

    def test_match(self) -> None:
        """A path finds its pattern, and the values its names stand for."""
        self.assertEqual(self.answered("/"), ["/", {}])
        self.assertEqual(self.answered("/machines/a?x=/b"), ["/machines/{name}", {"name": "a"}])
        self.assertEqual(
            self.answered("/machines/a%20b/exec", "POST"),
            ["/machines/{name}/exec", {"name": "a b"}],
        )

    def test_literals_first(self) -> None:
        """A literal wins over a name unless the rest of the path does not match."""
        self.assertEqual(self.answered("/machines/special"), ["/machines/special", {}])
        self.assertEqual(
            self.answered("/machines/special/exec"),
            ["/machines/{name}/exec", {"name": "special"}],
        )
        self.assertEqual(
            self.answered("/machines/special", "PUT"), ["/machines/{name}", {"name": "special"}]
        )
        self.assertEqual(
            self.answered("/pods/a/exec"), ["/{kind}/{name}/exec", {"kind": "pods", "name": "a"}]
        )

    def test_trailing_slash(self) -> None:
        """A pattern with a trailing slash matches only paths that have one, too."""
        self.assertEqual(self.answered("/version/"), ["/version/", {}])
        for path in ("/version", "/version//"):
            self.assertEqual(self.answered(path), 404, path)

    def test_unknown(self) -> None:
        """Unmatched paths are 404, other trailing slashes and empty segments included."""
        for path in (
            "/nothing",
            "/machines",
            "/machines/",
            "//",
            "/machines/a/",
            "/machines//exec",
        ):
            self.assertEqual(self.answered(path), 404, path)

    def test_refused_paths(self) -> None:
        """Paths that another hop may read differently are refused."""
        for path in (
            "/machines/a%2Fexec",
            "/machines/%2e%2E/exec",
            "/machines/../exec",
            "/machines/./exec",
            "/machines/a%00",
            "/machines/a%5Cb",
            "/machines/%ff",
            "machines",
            "*",
        ):
            self.assertEqual(self.answered(path), 400, path)

    def test_encoded_once(self) -> None:
        """A path is decoded exactly once."""
        self.assertEqual(
            self.answered("/machines/a%252Fb"), ["/machines/{name}", {"name": "a%2Fb"}]
        )

    def test_method(self) -> None:
        """A known path with another method is 405, and the response lists the permitted ones."""
        answer = self.server.request("DELETE", "/machines/a")
        self.assertEqual((answer.code, answer.headers["allow"]), (405, "GET, PUT"))
        self.assertEqual(answer.json()["message"], "DELETE is not allowed here; allowed: GET, PUT")
        self.assertEqual(self.answered("/machines/a", "get"), 405)

    def test_head(self) -> None:
        """HEAD is GET without a body."""
        self.assertEqual(self.server.request("HEAD", "/machines/a").code, 200)
        with self.assertRaises(MethodNotAllowed):
            self.put_only().match(b"HEAD", b"/x")

    def put_only(self) -> Routes:
        async def answer(request: Request, values: Mapping[str, str]) -> None:
            raise AssertionError

        routes = Routes()
        routes.add(["PUT"], "/x", answer)
        return routes

    def test_twice(self) -> None:
        """One method of one pattern has one handler."""
        with self.assertRaises(ValueError):
            Table().add(["GET"], "/machines/{other}")

    def test_without_a_request(self) -> None:
        """A table can be matched without a request."""
        with self.assertRaises(APIError) as caught:
            Routes().match(b"GET", b"/x")
        self.assertEqual(caught.exception.code, 404)


class SplitPathTests(SynchronousTestCase):
    """Tests for :func:`split_path`."""

    def test_segments(self) -> None:
        """Segments are decoded; an empty one stays."""
        self.assertEqual(split_path(b"/"), [])
        self.assertEqual(split_path(b"/a/%C3%A9/"), ["a", "é", ""])

    def test_relative(self) -> None:
        """A path begins with a slash."""
        with self.assertRaises(BadRequest):
            split_path(b"a/b")

"""
Tests for :mod:`twisted_exec.apiserver.serving.probes`, within an API server.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail

from tests.apiserver.support import APITestCase
from twisted_exec.api.status import ServiceUnavailable


class ProbesTests(APITestCase):
    """``/healthz``, ``/livez`` and ``/readyz``."""

    def told(self, path: str, code: int = 200, user: str = "admin") -> str:
        response = self.ask("GET", path, user=user)
        self.assertEqual(response.code, code, response.body)
        return response.body.decode()

    def break_store(self) -> None:
        def broken() -> Deferred[object]:
            return fail(ServiceUnavailable("a secret path is full"))

        self.patch(self.storage, "probe", broken)
        self.parts.probes.health._probes[:] = [("storage", broken)]
        self.clock.advance(2)

    def test_one_word(self) -> None:
        """Unauthenticated users get a single word."""
        for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose", "/healthz?verbose=1"):
            self.assertEqual(self.told(path, user=""), "ok")

    def test_verbose(self) -> None:
        """With ``?verbose``, an authenticated user sees each check."""
        self.assertEqual(
            self.told("/readyz?verbose"),
            "[+]ping ok\n[+]storage ok\n[+]system-objects ok\n[+]shutdown ok\nreadyz check passed\n",
        )
        self.assertEqual(self.told("/livez?verbose"), "[+]ping ok\nlivez check passed\n")
        self.assertEqual(self.told("/healthz?verbose=x"), "[+]ping ok\nhealthz check passed\n")

    def test_broken(self) -> None:
        """A server whose store fails is alive but not ready; the reason is withheld."""
        self.break_store()
        self.assertEqual(self.told("/readyz", 503), "readyz check failed")
        self.assertEqual(
            self.told("/readyz?verbose", 503),
            "[+]ping ok\n[-]storage failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n",
        )
        self.assertEqual(self.told("/livez"), "ok")

    def test_stopping(self) -> None:
        """A stopping server is not ready at once, but stays alive until the end."""
        self.assertEqual(self.told("/readyz"), "ok")
        self.parts.probes.shutting_down()
        self.assertEqual(self.told("/readyz", 503, user=""), "readyz check failed")
        self.assertEqual(
            self.told("/readyz?verbose", 503),
            "[+]ping ok\n[+]storage ok\n[+]system-objects ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n",
        )
        self.assertEqual(self.told("/readyz/shutdown", 503), "shutdown check failed")
        self.assertEqual(self.told("/livez"), "ok")

    def test_excluded(self) -> None:
        """Checks can be excluded; the name of an unknown check gets a warning."""
        self.break_store()
        self.assertEqual(self.told("/readyz?exclude=storage", user=""), "ok")
        self.assertEqual(
            self.told("/readyz?verbose&exclude=storage&exclude=none"),
            "[+]ping ok\n[+]storage excluded: ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: "
            'no matches for "none"\nreadyz check passed\n',
        )

    def test_single(self) -> None:
        """A check has its own path, for users with the right to get that path."""
        for path in ("/livez/ping", "/healthz/ping", "/readyz/ping", "/readyz/storage"):
            self.assertEqual(self.told(path), "ok")
        self.break_store()
        self.assertEqual(self.told("/readyz/storage", 503), "storage check failed")
        for path in ("/readyz/nothing", "/livez/storage", "/readyz/", "/readyz/a/b", "/livez/%00"):
            self.assertIn(self.ask("GET", path).code, (400, 404), path)
        self.refused(401, "GET", "/readyz/storage", user="")
        self.refused(403, "GET", "/readyz/storage", user="jane")

    def test_methods(self) -> None:
        """HEAD is a question as well; others are not."""
        response = self.ask("HEAD", "/readyz")
        self.assertEqual((response.code, response.body), (200, b""))
        self.refused(405, "POST", "/readyz")
        self.refused(401, "POST", "/readyz", user="")

    def test_listed(self) -> None:
        """``/`` says where there is something, to those who may know."""
        paths = self.answer("GET", "/")["paths"]
        for path in (
            "/api/v1",
            "/apis/compute.ironcore.dev/v1alpha1",
            "/openapi/v3/api/v1",
            "/readyz/storage",
            "/livez/ping",
            "/version",
        ):
            self.assertIn(path, paths)
        self.assertEqual(paths, sorted(set(paths)))
        for path in paths:
            self.assertEqual(self.ask("GET", path).code, 200, path)
        self.refused(403, "GET", "/", user="jane")

"""Tests for :mod:`twisted_exec.wire.cross_site`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.cross_site import is_cross_site, read_origin
from twisted_exec.wire.upgrade import BEARER_SUBPROTOCOL


class CrossSiteTests(SynchronousTestCase):
    """Tests for :func:`is_cross_site`."""

    def test_own(self) -> None:
        """A request without Origin, or with the server's own, is not cross-site."""
        host = (b"Host", b"api.example:6443")
        self.assertFalse(is_cross_site([host]))
        for origin in (b"https://api.example:6443", b"HTTPS://API.example:6443"):
            self.assertFalse(is_cross_site([host, (b"origin", origin)]))
            self.assertFalse(is_cross_site([host, (b"origin", origin)], secure=True))

    def test_port_that_goes_without_saying(self) -> None:
        """The default port of a scheme may be omitted in Host and in Origin."""
        for host, origin, same in (
            (b"api.example", b"https://api.example:443", True),
            (b"api.example:443", b"https://api.example", True),
            (b"api.example:80", b"http://api.example", True),
            (b"api.example:443", b"http://api.example:443", True),
            (b"api.example:443", b"http://api.example", False),
            (b"api.example:80", b"https://api.example", False),
        ):
            headers = [(b"Host", host), (b"Origin", origin)]
            self.assertEqual(is_cross_site(headers), not same, headers)

    def test_in_the_clear(self) -> None:
        """An http:// origin is accepted only by a server without TLS."""
        headers = [(b"Host", b"api.example"), (b"Origin", b"http://api.example")]
        self.assertFalse(is_cross_site(headers))
        self.assertTrue(is_cross_site(headers, secure=True))

    def test_other_authorization(self) -> None:
        """
        Only a bearer token permits a foreign page: with ``wss://name:password@HOST`` a page makes
        the browser send other authorization.
        """
        page = [(b"Host", b"api.example"), (b"Origin", b"https://evil.example")]
        for told in (b"Basic eDp5", b"Negotiate YII", b"Bearer", b"Bearer  ", b"", b"Bearerx y"):
            self.assertTrue(is_cross_site([*page, (b"Authorization", told)]), told)
        for told in (b"Bearer x", b"bearer  x"):
            self.assertFalse(is_cross_site([*page, (b"authorization", told)]), told)

    def test_allowed(self) -> None:
        """Only allowed sites may connect, in any spelling of their origin."""
        allowed = [read_origin(one) for one in ("https://Dash.example:443", "null")]
        host = (b"Host", b"api.example:6443")
        for origin, cross in (
            (b"https://dash.example", False),
            (b"https://dash.example:443", False),
            (b"null", False),
            (b"http://dash.example", True),
            (b"https://dash.example:8443", True),
            (b"https://dash.example.evil.example", True),
            (b"", True),
        ):
            told = is_cross_site([host, (b"Origin", origin)], secure=True, allowed=allowed)
            self.assertEqual(told, cross, origin)

    def test_foreign(self) -> None:
        """
        Another site or port, a sandboxed page, or an origin that cannot be compared is cross-site.
        """
        host = (b"Host", b"api.example:6443")
        for origin in (
            b"https://evil.example",
            b"https://api.example",
            b"https://api.example:6443.evil.example",
            b"null",
            b"",
        ):
            self.assertTrue(is_cross_site([host, (b"ORIGIN", origin)]), origin)
        twice = [(b"Origin", b"https://api.example:6443")] * 2
        self.assertTrue(is_cross_site([host, *twice]))
        self.assertTrue(is_cross_site([(b"Origin", b"null")]))
        self.assertTrue(is_cross_site([(b"Host", b""), (b"Origin", b"null")]))

    def test_verdict(self) -> None:
        """
        ``Sec-Fetch-Site`` decides: a page behind a proxy is of the same origin, whatever Host says.
        """
        proxied = [(b"Host", b"api.example:6443"), (b"Origin", b"http://127.0.0.1:8001")]
        own = [(b"Host", b"api.example"), (b"Origin", b"https://api.example")]
        for verdicts, cross in (
            ([b"same-origin"], False),
            ([b"none"], False),
            ([b"same-site"], True),
            ([b"cross-site"], True),
            ([b""], True),
            ([b"same-origin", b"cross-site"], True),
            ([b"same-origin, cross-site"], True),
        ):
            told = [(b"Sec-Fetch-Site", each) for each in verdicts]
            for headers in (proxied, own):
                self.assertEqual(is_cross_site([*headers, *told], secure=True), cross, told)
        foreign = [*own, (b"sec-fetch-site", b"cross-site")]
        self.assertFalse(is_cross_site(foreign, allowed=[b"https://api.example"]))
        self.assertFalse(is_cross_site([*foreign, (b"Authorization", b"Bearer x")]))

    def test_verdict_without_origin(self) -> None:
        """A link from another site may read; a change or an upgrade without Origin is refused."""
        link = [(b"Host", b"api.example"), (b"Sec-Fetch-Site", b"cross-site")]
        self.assertFalse(is_cross_site(link))
        self.assertTrue(is_cross_site(link, reads_only=False))
        own = [(b"Host", b"api.example"), (b"Sec-Fetch-Site", b"same-origin")]
        self.assertFalse(is_cross_site(own, reads_only=False))

    def test_explicit(self) -> None:
        """A bearer token permits any page, because browsers do not add it by themselves."""
        headers = [(b"Origin", b"https://evil.example"), (b"Authorization", b"Bearer x")]
        self.assertFalse(is_cross_site(headers))

    def test_token_of_a_page(self) -> None:
        """
        A token among the subprotocols permits a foreign page only if no client certificate is
        shown.
        """
        token = (b"Sec-WebSocket-Protocol", BEARER_SUBPROTOCOL + b"eA, v5.channel.k8s.io")
        origin = (b"Origin", b"https://page.example")
        self.assertTrue(is_cross_site([origin, token]))
        self.assertFalse(is_cross_site([origin, token], has_ambient_credentials=False))
        self.assertTrue(is_cross_site([origin], has_ambient_credentials=False))


class ReadOriginTests(SynchronousTestCase):
    """Tests for :func:`read_origin`."""

    def test_forms(self) -> None:
        """An origin has a scheme, a host and an optional port, or is ``null``."""
        for told, origin in (
            ("https://dash.example", b"https://dash.example"),
            (" HTTPS://Dash.Example:443 ", b"https://dash.example"),
            ("http://127.0.0.1:8001", b"http://127.0.0.1:8001"),
            ("http://[::1]:80", b"http://[::1]"),
            ("null", b"null"),
        ):
            self.assertEqual(read_origin(told), origin)

    def test_none(self) -> None:
        """Anything else raises ValueError, as it would match nothing or too much."""
        for told in ("", "*", "dash.example", "https://", "https://a/b", "ftp://a", "https://a:x"):
            with self.assertRaises(ValueError) as caught:
                read_origin(told)
            self.assertIn(repr(told), str(caught.exception))

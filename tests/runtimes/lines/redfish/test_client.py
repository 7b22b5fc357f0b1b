"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.client`, with a small BMC."""

from __future__ import annotations

import base64

from twisted.trial.unittest import SynchronousTestCase

from tests.runtimes.bmc.server import pin_of
from tests.runtimes.lines.redfish.support import BMCCase
from tests.tls.support import authority, write
from twisted_exec.api.status import BadGateway, GatewayTimeout
from twisted_exec.runtimes.lines.redfish import client
from twisted_exec.runtimes.lines.redfish.client import Answer, parse_pin, refused

ROOT = "/redfish/v1/"


class PinTests(SynchronousTestCase):
    """The text of a pin."""

    def test_forms(self) -> None:
        """Hexadecimal digits, with colons or without, or the form of curl."""
        digest = bytes(range(32))
        colons = ":".join(f"{byte:02X}" for byte in digest)
        for text in (digest.hex(), colons, "sha256//" + base64.b64encode(digest).decode()):
            self.assertEqual(parse_pin(text), digest)

    def test_mistakes(self) -> None:
        """Anything else is refused."""
        for text in ("", "x" * 64, "00" * 31, "sha256//AAAA", "sha256//%%%"):
            with self.assertRaises(ValueError):
                parse_pin(text)


class TrustTests(BMCCase):
    """No request reaches a BMC that is not the right one."""

    async def test_pin(self) -> None:
        """The key's SHA-256 is enough, whatever the certificate says."""
        answer = await self.client().send("GET", ROOT)
        self.assertEqual(answer.code, 200)

    async def test_ca(self) -> None:
        """A CA is enough, too."""
        answer = await self.client(ca=self.ca).send("GET", ROOT)
        self.assertTrue(answer.is_success)

    async def test_other_key(self) -> None:
        """Another key is refused, and the error names it."""
        with self.assertRaises(BadGateway) as caught:
            await self.client(pin=bytes(32)).send("POST", "/x", body={"Password": "canary"})
        self.assertIn(self.bmc.pin, caught.exception.message)
        self.assertIn(
            "change pin in the classes file, and reload the runtime", caught.exception.message
        )
        self.assertEqual(self.bmc.requests, [])

    async def test_other_authority(self) -> None:
        """A certificate of another CA is refused."""
        other = write(self.directory, "other.pem", authority("others").certificate_pem)
        with self.assertRaises(BadGateway) as caught:
            await self.client(ca=other).send("GET", ROOT)
        self.assertIn(
            f"trusted CA; put its CA in {other}, which is read again, or set pin instead of ca in the "
            "classes file, and reload the runtime",
            caught.exception.message,
        )
        self.assertEqual(self.bmc.requests, [])

    async def test_changed_certificate(self) -> None:
        """A key that changes is refused in the next connection."""
        chosen = self.client()
        await chosen.send("GET", ROOT)
        await chosen.close()
        identity = authority("serving").issue_server(["127.0.0.1"])
        self.assertNotEqual(pin_of(identity), self.bmc.pin)
        self.bmc.use(identity)
        with self.assertRaises(BadGateway):
            await chosen.send("GET", ROOT)
        self.assertEqual(len(self.bmc.requests), 1)


class BadAnswerTests(BMCCase):
    """Answers that would do harm."""

    async def test_huge(self) -> None:
        """A body of 100 MB is refused when its limit is reached."""
        self.bmc.faults.huge = {ROOT}
        with self.assertRaises(BadGateway) as caught:
            await self.client().send("GET", ROOT)
        self.assertIn("larger than", caught.exception.message)

    async def test_slow(self) -> None:
        """An answer that does not come is given up."""
        self.patch(client, "REQUEST_SECONDS", 0.2)
        self.bmc.faults.hangs = {ROOT}
        with self.assertRaises(GatewayTimeout):
            await self.client().send("GET", ROOT)

    async def test_redirect(self) -> None:
        """A redirect is an error, and not followed."""
        other = self.make_bmc("dell")
        address = f"https://127.0.0.1:{other.port}/redfish/v1/"
        self.bmc.faults.redirects = {ROOT: address}
        answer = await self.client().send("GET", ROOT)
        self.assertIn("redirects", refused(answer, "GET", ROOT).message)
        self.assertEqual(other.requests, [])

    async def test_empty(self) -> None:
        """A body that is empty in spite of 200 is an error."""
        self.bmc.faults.empty = {ROOT}
        answer = await self.client().send("GET", ROOT)
        with self.assertRaises(BadGateway) as caught:
            answer.document()
        self.assertIn("empty", caught.exception.message)

    def test_no_words(self) -> None:
        """Errors quote the id of a message, never its text, and no answer shows its token."""
        answer = Answer(403, b'{"error": {"message": "canary"}}', token="canary")
        self.assertNotIn("canary", refused(answer, "GET", ROOT).message)
        self.assertNotIn("canary", repr(answer))

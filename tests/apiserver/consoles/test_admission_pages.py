"""Handshakes of pages in browsers, at an API server."""

from __future__ import annotations

import base64
import json

from tests.apiserver.support import APITestCase
from tests.streaming.frames import BytesMessage, Peer
from twisted_exec.wire.upgrade import BEARER_SUBPROTOCOL, RESUME_SUBPROTOCOL

EXEC = b"/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/vm/exec"


def encoded(text: bytes) -> bytes:
    """Return the form of a text in a subprotocol."""
    return base64.urlsafe_b64encode(text).rstrip(b"=")


class RefusalTests(APITestCase):
    """Refusals reach the page."""

    def refusal(self, token: bytes, value: bytes = b"marks; credit=131072") -> tuple[int, str]:
        """Return the code and the message that a page reads."""
        protocols = (
            b"v5.channel.k8s.io",
            BEARER_SUBPROTOCOL + encoded(token),
            RESUME_SUBPROTOCOL + encoded(value),
        )
        peer = Peer(self.server, path=EXEC, protocols=b", ".join(protocols))
        self.assertIn(b" 101 ", peer.head)
        status, *_ = peer.events()
        assert isinstance(status, BytesMessage)
        document = json.loads(bytes(status.data[1:]))
        return document["code"], document["message"]

    def test_codes(self) -> None:
        """Of the gate, of the admission and of the header alike; they are on record with their codes."""
        self.assertEqual(self.refusal(b"unknown")[0], 401)
        self.assertEqual(self.refusal(b"jane")[0], 403)
        code, message = self.refusal(b"admin")
        self.assertEqual(code, 404)
        self.assertIn('"vm" not found', message)
        self.assertEqual(self.refusal(b"admin", b"marks; credit=1")[0], 400)
        codes = [each["code"] for each in self.audit if each["event"] == "end"]
        self.assertEqual(codes, [401, 403, 404, 400])

"""Tests for :mod:`twisted_exec.poollet.exec_urls`."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.chain import SERVING
from twisted_exec.api.status import APIError, NotImplementedByBackend
from twisted_exec.poollet.allowed_hosts import AllowedHost
from twisted_exec.poollet.exec_urls import Dialler, StreamDestination
from twisted_exec.tls.errors import TLSConfigError


class DiallerTests(SynchronousTestCase):
    """Tests for :class:`Dialler`."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()  # 0700, and short
        self.addCleanup(shutil.rmtree, self.directory)
        self.ca = os.path.join(self.directory, "ca.crt")
        Path(self.ca).write_bytes(SERVING.certificate_pem)
        self.dialler = Dialler(
            MemoryReactorClock(), runtime_ca=self.ca, allowed=[AllowedHost("runtime.example")]
        )
        self.dialler.load()

    def socket(self, name: str = "exec.sock") -> str:
        """A listening UNIX socket's path."""
        path = os.path.join(self.directory, name)
        listening = socket.socket(socket.AF_UNIX)
        self.addCleanup(listening.close)
        listening.bind(path)
        return path

    def unix_url(self, path: str) -> str:
        return f"http+unix://{quote(path, safe='')}/exec/T?a=b"

    def target(self, url: str) -> StreamDestination:
        return self.dialler.target(url)

    def refusal(self, url: str, dialler: Dialler | None = None) -> str:
        """Return why a URL is not dialled; the message never contains its path."""
        with self.assertRaises(APIError) as caught:
            (dialler or self.dialler).target(url)
        self.assertEqual(caught.exception.code, 502)
        self.assertNotIn("canary", caught.exception.message)
        return caught.exception.message.partition("not used: ")[2]

    def test_loopback(self) -> None:
        """Plain HTTP is dialled on this host, by number; the name is kept for the header."""
        target = self.target("http://localhost:8080/exec/T?a=b")
        self.assertEqual((target.host, target.path), (b"localhost:8080", b"/exec/T?a=b"))
        self.assertIn("127.0.0.1:8080", repr(target.endpoint))
        self.assertEqual(self.target("http://[::1]:80/x").host, b"[::1]:80")
        self.assertEqual(self.target("http://127.9.9.9/x").host, b"127.9.9.9:80")

    def test_plain_elsewhere(self) -> None:
        """Plain HTTP is dialled on no other host, in any spelling."""
        for host in ("10.0.0.1", "runtime", "127.0.0.1.nip.io", "0.0.0.0", "[::]", "2130706433"):
            self.assertIn("on this host only", self.refusal(f"http://{host}:80/exec/canary"))

    def test_https(self) -> None:
        """TLS goes to hosts that are allowed, verified by the runtime's CA."""
        target = self.target("https://runtime.example/exec/T")
        self.assertEqual(target.host, b"runtime.example:443")
        self.assertEqual(target.label, "the machine runtime at runtime.example:443")
        self.assertIn("TLS", repr(target.endpoint))

    def test_not_allowed(self) -> None:
        """TLS goes to no other host, whatever its CA; nor to another port, if one is configured."""
        for host in ("other.example", "10.0.0.1", "[fd00::1]", "runtime.example.evil", "0.0.0.0"):
            message = self.refusal(f"https://{host}:8443/exec/canary")
            self.assertIn("which is not allowed (--exec-url-allowed)", message)
        self.assertIn("127.0.0.1:8443", repr(self.target("https://127.0.0.1:8443/x").endpoint))
        places = [AllowedHost("10.0.0.1", 8443), AllowedHost("fd00::1")]
        dialler = Dialler(MemoryReactorClock(), runtime_ca=self.ca, allowed=places)
        dialler.target("https://10.0.0.1:8443/x")
        dialler.target("https://[fd00:0::1]/x")
        self.assertIn("10.0.0.1:443, which", self.refusal("https://10.0.0.1/x", dialler))

    def test_https_without_a_ca(self) -> None:
        """https without a CA is refused: the peer could not be verified."""
        self.assertIn(
            "--runtime-ca-file", self.refusal("https://runtime/exec/canary", Dialler(Clock()))
        )

    def test_bad_ca(self) -> None:
        """An invalid CA file is reported when the program starts."""
        Path(self.ca).write_bytes(b"nonsense")
        with self.assertRaises(TLSConfigError):
            Dialler(Clock(), runtime_ca=self.ca).load()

    def test_unix(self) -> None:
        """A UNIX socket in a private directory is dialled."""
        target = self.target(self.unix_url(self.socket()))
        self.assertEqual((target.host, target.path), (b"localhost", b"/exec/T?a=b"))

    def test_unix_in_other_hands(self) -> None:
        """Sockets in directories that others may write, and other files, are refused."""
        path = self.socket()
        os.chmod(self.directory, 0o777)
        self.assertIn("can be written by other users", self.refusal(self.unix_url(path)))
        os.chmod(self.directory, 0o700)
        self.assertIn("is not a socket", self.refusal(self.unix_url(self.ca)))
        os.symlink(path, os.path.join(self.directory, "link"))
        self.assertIn(
            "is not a socket", self.refusal(self.unix_url(os.path.join(self.directory, "link")))
        )
        self.assertIn("does not exist", self.refusal(self.unix_url(self.directory + "/no")))
        self.assertIn("no absolute path", self.refusal("http+unix://relative%2Fsock/x"))

    def beside(self, runtime: str, **more: Any) -> Dialler:
        """For a runtime that is reached at a gRPC target."""
        return Dialler(MemoryReactorClock(), runtime_ca=self.ca, runtime=runtime, **more)

    def test_unix_of_the_runtime(self) -> None:
        """Only sockets of the runtime's own user are dialled, whatever else may be."""
        path, iri = self.socket(), self.socket("iri.sock")
        url = self.unix_url(path)
        self.assertEqual(self.beside(f"unix://{iri}").target(url).path, b"/exec/T?a=b")
        other = "/"  # somebody else's
        if os.geteuid() == 0:
            other = iri
            os.chown(iri, 65534, -1)
        message = self.refusal(url, self.beside(f"unix://{other}"))
        self.assertIn(f"belongs to user {os.geteuid()}, not to the runtime's", message)
        self.beside(f"unix://{other}", trusted_uids=[os.geteuid()]).target(url)
        missing = self.beside(f"unix://{self.directory}/gone")
        self.assertIn("does not exist", self.refusal(url, missing))

    def test_runtime_elsewhere(self) -> None:
        """A runtime on another host cannot point to this one."""
        dialler = self.beside("dns:///runtime.example:20251")
        for url in (self.unix_url(self.socket()), "http://127.0.0.1:80/exec/canary"):
            self.assertIn("on another host", self.refusal(url, dialler))
        for here in ("127.0.0.1", "127.8.8.8", "[::1]", "localhost", "LOCALHOST."):
            self.assertIn("not allowed", self.refusal(f"https://{here}:6443/canary", dialler))
        named = self.beside(
            "dns:///runtime.example:20251", allowed=[AllowedHost("127.0.0.1", 6443)]
        )
        named.target("https://127.0.0.1:6443/x")
        dialler.target("https://RUNTIME.example./exec/T")  # where it is itself
        self.assertIn("not allowed", self.refusal("https://other.example/canary", dialler))
        for here in ("127.0.0.1", "[::1]", "localhost"):
            self.beside(f"dns:///{here}:20251").target("http://127.0.0.1:80/x")

    def test_empty(self) -> None:
        """No URL means no console: 501."""
        with self.assertRaises(NotImplementedByBackend):
            self.target("")

    def test_nonsense(self) -> None:
        """URLs of any other form are refused."""
        for url, why in (
            ("ftp://127.0.0.1/canary", "its scheme is 'ftp'"),
            ("/exec/canary", "its scheme is ''"),
            ("http://:80/exec/canary", "has no host"),
            ("http://127.0.0.1:0/exec/canary", "has no host"),
            ("http://127.0.0.1:99999/canary", "not a URL"),
            ("http://[::1/canary", "not a URL"),
            ("http://user:canary@127.0.0.1/x", "more than a host"),
            ("http://127.0.0.1/x#canary", "more than a host"),
            ("http://127.0.0.1", "its path cannot be requested"),
            ("http://127.0.0.1/canary x", "its path cannot be requested"),
            ("http://127.0.0.1/canary\u00e4", "its path cannot be requested"),
            ("http://127.0.0.1/" + "x" * 5000, "its path cannot be requested"),
        ):
            self.assertIn(why, self.refusal(url), url)

    def test_header_injection(self) -> None:
        """Line ends cannot get into the request."""
        for url in ("http://127.0.0.1/x\r\nA: b", "http://127.0.0.1/x?\r\nA: b"):
            try:
                target = self.target(url)
            except APIError:
                continue
            self.assertNotIn(b"\n", target.path + target.host)  # urlsplit drops them

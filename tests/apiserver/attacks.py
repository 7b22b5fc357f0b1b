"""
Attempts to open a console around authorization: methods, spellings of the path, headers.

A user with read access to machines tries all of them (``test_attacks``, and behind a real
kube-apiserver ``tests.interop.aggregated``).  No attempt may reach the machine.  Each is a raw
request, because most HTTP clients would not send it.  Console input follows each request
at once, and would be typed if a console had opened.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from tests.streaming.frames import KEY

SECONDS, LAST_SECONDS = 10.0, 2.0
METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "CONNECT",
    "TRACE",
    "get",
    "create",
    "PROPFIND",
)

Headers = tuple[tuple[str, str], ...]

WEBSOCKET: Headers = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY.decode()),
    ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
)
SPDY: Headers = (
    ("Connection", "Upgrade"),
    ("Upgrade", "SPDY/3.1"),
    ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
)


@dataclass(frozen=True)
class Attack:
    """
    One request.

    :param target: the request target, as in the request line.
    """

    method: str
    target: str
    headers: Headers = WEBSOCKET

    @property
    def head(self) -> bytes:
        """All of it."""
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        if not any(name.lower() == "host" for name, _ in self.headers):
            lines.append("Host: 127.0.0.1")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True)
class Target:
    """The machine that is not to be reached."""

    group: str = "compute.ironcore.dev"
    version: str = "v1alpha1"
    namespace: str = "default"
    name: str = "vm"
    pool: str = "pool-a"
    query: str = "stdin=true&stdout=true&tty=true&command=console"

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    @property
    def machine(self) -> str:
        return f"{self.root}/namespaces/{self.namespace}/machines/{self.name}"

    @property
    def path(self) -> str:
        return f"{self.machine}/exec"


def attacks(target: Target) -> Iterator[Attack]:
    """Every way that is known here."""
    asked = f"{target.path}?{target.query}"
    for method in METHODS:
        for headers in (WEBSOCKET, SPDY, ()):
            yield Attack(method, asked, headers)
    for spelling in dict.fromkeys((*spellings(target.path), *elsewhere(target))):
        question = "&" if "?" in spelling else "?"
        for method in ("GET", "POST"):
            yield Attack(method, f"{spelling}{question}{target.query}")
    for query in queries():
        for method in ("GET", "POST"):
            yield Attack(method, f"{target.path}?{target.query}&{query}")
            yield Attack(method, f"{target.path}?{query}")
    for more in headers_of(target):
        for method in ("GET", "POST"):
            yield Attack(method, asked, (*WEBSOCKET, *more))
        yield Attack("GET", target.machine, (*WEBSOCKET, *more))
    for upgrade in upgrades():
        yield Attack("GET", asked, upgrade)


def spellings(path: str) -> Iterator[str]:
    """Paths that one hop might take for this one, and another hop for a different one."""
    parts = path.split("/")[1:]
    for end in (
        "/",
        "//",
        "/.",
        "/..",
        "/./",
        "%2F",
        "%2f",
        "/%2e",
        "/x/..",
        "/%2e%2e",
        ";",
        ";a=b",
    ):
        yield path + end
    for end in (
        "%00",
        "%20",
        "%09",
        "%0a",
        "%0d%0a",
        "%3f",
        "%23",
        "#x",
        ".",
        "\\",
        "%5c",
        "%c0%af",
    ):
        yield path + end
    for at in range(len(parts)):
        before, part, after = parts[:at], parts[at], parts[at + 1 :]
        for meant in (
            f"/{part}",
            f"./{part}",
            f"x/../{part}",
            f"x/%2e%2e/{part}",
            f"%2e/{part}",
            part.upper(),
            part.capitalize(),
            f"%{ord(part[0]):02x}{part[1:]}",
            f"%25{ord(part[0]):02x}{part[1:]}",
            f"{part}%00",
            f"{part};x",
        ):
            yield "/" + "/".join([*before, meant, *after])
        if before:
            for slash in ("%2f", "%2F", "%252f", "\\", "%5c", ";/"):
                yield "/" + "/".join(before) + slash + "/".join([part, *after])


def elsewhere(target: Target) -> Iterator[str]:
    """Other paths from which there might be a way to it."""
    base, name = target.root, target.name
    inner = f"namespaces/{target.namespace}/machines/{name}"
    for group in ("compute", f"{target.group}.", "core.ironcore.dev", "console.twisted-exec.dev"):
        yield f"/apis/{group}/{target.version}/{inner}/exec"
    for version in ("v1", "v1alpha2", "v1beta1", "__internal", "*"):
        yield f"/apis/{target.group}/{version}/{inner}/exec"
    for prefix in ("watch", "proxy", "redirect"):
        yield f"{base}/{prefix}/{inner}/exec"
        yield f"{base}/{prefix}/{inner}"
    for kind in ("machine", "pods", "consolesessions", "machinepools", "machines.compute"):
        yield f"{base}/namespaces/{target.namespace}/{kind}/{name}/exec"
    for subresource in ("attach", "console", "proxy", "portforward", "status", "log", "exec/exec"):
        yield f"{target.machine}/{subresource}"
    yield f"{base}/machines/{name}/exec"
    yield f"{base}/namespaces/{target.namespace}/machines/exec"
    yield f"{base}/namespaces/{target.namespace}/machines//exec"
    yield f"{target.machine}?subresource=exec"
    for pod in (name, f"{name}.ironcore"):
        for subresource in ("exec", "attach", "portforward", "proxy"):
            yield f"/api/v1/namespaces/{target.namespace}/pods/{pod}/{subresource}"
    for pool in (f"machinepools/{target.pool}/proxy", f"machinepools/{target.pool}:20250/proxy"):
        yield f"{base}/{pool}{target.path}"
    for service in ("https:exec-apiserver:443", "exec-apiserver", "https:exec-apiserver:https"):
        yield f"/api/v1/namespaces/twisted-exec/services/{service}/proxy{target.path}"
    for host in ("https://127.0.0.1", "http://127.0.0.1:6443", "https://kubernetes.default.svc"):
        yield f"{host}{target.path}"
    yield f"//127.0.0.1{target.path}"
    yield f"*{target.path}"
    yield target.path[1:]


def queries() -> Iterator[str]:
    """Parameters that might change the verb, or the user."""
    yield from ("verb=create", "_method=POST", "method=POST", "action=exec", "dryRun=All")
    yield from ("watch=true", "watch", "resourceVersion=0", "fieldSelector=metadata.name%3Dvm")
    yield from ("as=admin", "impersonate=admin", "access_token=x", "user=admin", "uid=1")
    yield from ("Impersonate-User=admin", "X-Remote-User=admin", "group=system:masters")
    yield from (
        "%00",
        "stdin=true%0d%0aX-Remote-User:%20admin",
        ";verb=create",
        "command=%2fbin%2fsh",
    )


def upgrades() -> Iterator[Headers]:
    """Requests to upgrade that some hop might read otherwise."""
    rest = WEBSOCKET[2:]
    for name in (
        "WebSocket",
        "WEBSOCKET",
        "websocket, SPDY/3.1",
        "SPDY/3.1, websocket",
        "h2c",
        "*",
    ):
        yield (("Connection", "Upgrade"), ("Upgrade", name), *rest)
    for connection in (
        "upgrade",
        "keep-alive, Upgrade",
        "close, Upgrade",
        # Headers named here are hop-by-hop: a proxy removes them.
        "Upgrade, X-Remote-User",
        "Upgrade, X-Remote-User, X-Remote-Group, X-Remote-Uid",
        "Upgrade, Authorization, Host",
    ):
        yield (("Connection", connection), ("Upgrade", "websocket"), *rest)
    yield (*WEBSOCKET, ("Upgrade", "SPDY/3.1"))
    yield (*WEBSOCKET, ("Connection", "close"))
    yield (*WEBSOCKET, *SPDY)
    yield (*WEBSOCKET, ("Content-Length", "0"), ("Transfer-Encoding", "chunked"))
    yield (*WEBSOCKET, ("Expect", "100-continue"))
    yield (
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    )
    for protocol in (
        "base64url.bearer.authorization.k8s.io." + _plain("admin"),
        "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io." + _plain("system:masters"),
        "base64url.bearer.authorization.k8s.io.",
        "v4.base64.channel.k8s.io",
        "SPDY/3.1+portforward.k8s.io",
    ):
        yield (*WEBSOCKET[:-1], ("Sec-WebSocket-Protocol", protocol))


def headers_of(target: Target) -> Iterator[Headers]:
    """Headers that might change the user, or the target."""
    for user in ("admin", "system:apiserver", "system:serviceaccount:twisted-exec:exec-apiserver"):
        yield (("X-Remote-User", user), ("X-Remote-Group", "system:masters"))
        yield (("X-Remote-User", user), ("X-Remote-Group", "system:masters"), ("X-Remote-Uid", "1"))
        yield (("X_Remote_User", user), ("X_Remote_Group", "system:masters"))
        yield (("Impersonate-User", user),)
        yield (("Impersonate-User", user), ("Impersonate-Group", "system:masters"))
    yield (("X-Remote-Extra-Authentication.kubernetes.io%2fcredential-id", "x"),)
    yield (("x-remote-user", "admin"), ("X-REMOTE-USER", "admin"))
    yield (("X-Remote-User", ""), ("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters"))
    yield (("Impersonate-Group", "system:masters"),)
    yield (("Impersonate-Uid", "1"),)
    yield (("Impersonate-Extra-scopes", "all"),)
    bearer = ("Authorization", f"Bearer {_plain('admin')}")
    yield (bearer,)
    yield (bearer, bearer)
    yield (("Authorization", "Basic " + _plain("admin:admin")), bearer)
    yield (("Authorization", "Bearer "),)
    yield (("Authorization", "Bearer " + _unsigned()),)
    yield (("Proxy-Authorization", bearer[1]),)
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        for method in ("POST", "CONNECT", "create"):
            yield ((name, method),)
    for name in ("X-Original-URL", "X-Rewrite-URL", "X-Original-URI", "X-Forwarded-Uri"):
        yield ((name, target.path),)
    yield (("X-Forwarded-For", "127.0.0.1"), ("X-Real-IP", "127.0.0.1"))
    yield (("Forwarded", "for=127.0.0.1;proto=https"),)
    yield (("X-Forwarded-User", "admin"), ("X-Auth-Request-User", "admin"))
    yield (("Host", "kubernetes.default.svc"),)
    yield (("Cookie", "user=admin; token=x"),)
    yield (("Audit-Id", "00000000-0000-0000-0000-000000000000"),)
    yield (("Content-Type", "application/json"), ("Content-Length", "0"))


def _plain(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _unsigned() -> str:
    """An unsigned token, with an algorithm that says so."""
    claims = {"sub": "system:serviceaccount:kube-system:admin", "iss": "https://nobody.example"}
    return ".".join([_plain(json.dumps({"alg": "none"})), _plain(json.dumps(claims)), ""])


class Attacker:
    """
    Sends attacks, one connection each.

    :param certificate: the user's client certificate, with its key; empty: unauthenticated.
    :param typed: bytes that follow each request at once, as input for an opened console.
    :param seconds: longest wait for an answer.
    """

    def __init__(
        self,
        port: int,
        ca: str,
        certificate: str = "",
        key: str = "",
        typed: bytes = b"",
        *,
        seconds: float = SECONDS,
    ) -> None:
        self._port, self._typed, self._seconds = port, typed, seconds
        self._context = ssl.create_default_context(cafile=ca)
        if certificate:
            self._context.load_cert_chain(certificate, key)

    def send(self, attack: Attack) -> tuple[int, bytes]:
        """The code of the answer, 0 when there is none; and how it begins.  Blocks."""
        answer = b""
        try:
            with (
                socket.create_connection(("127.0.0.1", self._port), self._seconds) as bare,
                self._context.wrap_socket(bare, server_hostname="127.0.0.1") as peer,
            ):
                peer.sendall(attack.head + self._typed)
                while b"\r\n\r\n" not in answer:
                    data = peer.recv(65536)
                    if not data:
                        break
                    answer += data
                    # "Go on" is no answer yet.
                    if answer.startswith(b"HTTP/1.1 100 "):
                        answer = answer.partition(b"\r\n\r\n")[2]
                if self._typed and answer.startswith(b"HTTP/1.1 101 "):
                    # A proxy may have dropped early bytes.  A console that did open must get
                    # the input before it is closed.
                    peer.sendall(self._typed)
                    peer.settimeout(LAST_SECONDS)
                    while peer.recv(65536):
                        pass
        except (OSError, ssl.SSLError):
            pass
        code = answer[9:12]
        return (int(code) if code.isdigit() else 0), answer[:2000]

"""
The small BMC: HTTPS with documents, sessions and power.

What it does not have, it answers with 404. Documents come from files in ``documents``, or from the
directory of a BMC that was captured; their power state and the links of a test may be changed in
:attr:`SmallBMC.documents`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet import reactor as _reactor
from twisted.internet.interfaces import IOpenSSLContextFactory
from twisted.internet.ssl import PrivateCertificate
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource, NoResource, Resource
from twisted.web.server import NOT_DONE_YET, Site
from zope.interface import implementer

from tests.runtimes.bmc.console import Console
from tests.runtimes.bmc.faults import Faults, error, names
from tests.tls.support import server_identity
from twisted_exec.tls.pki.authority import Issued

reactor: Any = _reactor

ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"
USER, PASSWORD = "admin", "canary-password"
HOST = "127.0.0.1"

_DOCUMENTS = Path(__file__).parent / "documents"
KINDS = tuple(sorted(each.stem for each in _DOCUMENTS.glob("*.json")))
"""The names of the files in ``documents``."""
_RESET = "/Actions/ComputerSystem.Reset"
_OFF = ("ForceOff", "GracefulShutdown")
_HUGE_BYTES, _PIECE = 100 << 20, b" " * (1 << 20)


@dataclass
class Session:
    """One session of a user."""

    id: str
    token: str
    requests: int = 0


def pin_of(identity: Issued) -> str:
    """The SHA-256 of a certificate's public key, in hexadecimal digits."""
    key = x509.load_pem_x509_certificate(identity.certificate_pem).public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def read_documents(kind: str) -> dict[str, Any]:
    """
    Return documents by path.

    :param kind: name of a file in ``documents``; or, with a slash, path of a directory in the layout of DMTF's
        mockups, in which the document ``/redfish/v1/Systems`` is ``redfish/v1/Systems/index.json``.
    """
    if "/" not in kind:
        found: dict[str, Any] = json.loads((_DOCUMENTS / f"{kind}.json").read_text())["documents"]
        return found
    root = Path(kind)
    found = {
        f"/{file.parent.relative_to(root)}": json.loads(file.read_text())
        for file in root.glob("redfish/v1/**/index.json")
    }
    return {ROOT: found.pop(ROOT.rstrip("/")), **found}


@implementer(IOpenSSLContextFactory)
class _Contexts:
    """The TLS contexts of a server whose certificate may change."""

    def __init__(self, identity: Issued) -> None:
        self.use(identity)

    def use(self, identity: Issued) -> None:
        pem = identity.certificate_pem + identity.key_pem
        self._options = PrivateCertificate.loadPEM(pem).options()

    def getContext(self) -> Any:
        return self._options.getContext()


class SmallBMC:
    """
    One BMC in this process.

    :param kind: name of a file in ``documents``, or path of a directory; see :func:`read_documents`.
    :param session_limit: a login beyond this number of sessions is refused.
    :param host: the address to listen on.
    :ivar documents: by path.
    :ivar sessions: by token.
    :ivar requests: all requests so far: method and path.
    :ivar resets: the values of all resets so far.
    :ivar logins: number of logins that gave a session.
    :ivar console: the WebSocket at ``/console``, ``/console/ID`` and ``/console0``.
    :ivar root: gets children for paths outside of ``/redfish``, such as a console.
    :ivar password: of its only user, :data:`USER`.
    :ivar location: of new sessions, if it is not their path.
    :ivar takes_basic: name and password are accepted with each request.
    :ivar waiting: requests that hang.
    """

    def __init__(
        self,
        kind: str = "openbmc",
        *,
        session_limit: int = 8,
        identity: Issued | None = None,
        host: str = HOST,
    ) -> None:
        self.documents = read_documents(kind)
        self.session_limit, self._host = session_limit, host
        self.faults = Faults()
        self.sessions: dict[str, Session] = {}
        self.requests: list[tuple[str, str]] = []
        self.resets: list[str] = []
        self.logins = 0
        self.password = PASSWORD
        self.location = ""
        self.takes_basic = False
        self.identity = identity or server_identity(HOST)
        self.waiting: list[IRequest] = []
        self.root = _Root(self)
        self.console = Console()
        self.console.tokens = self.sessions  # type: ignore[assignment]
        for name in (b"console", b"console0"):
            self.root.putChild(name, self.console.resource)
        self._ids = itertools.count(1)
        self._contexts = _Contexts(self.identity)
        self._port: Any = None
        self.port = 0
        self.power_changed: Callable[[str], None] = lambda state: None

    # Its life.

    def start(self, port: int = 0) -> SmallBMC:
        site = Site(self.root)
        site.noisy = False
        site.displayTracebacks = False
        self._port = reactor.listenSSL(port, site, self._contexts, interface=self._host)
        self.port = self._port.getHost().port
        return self

    async def stop(self) -> None:
        """Stop listening, and end all connections."""
        port, self._port = self._port, None
        if port is None:
            return
        await port.stopListening()
        for connection in list(port.factory.protocols):
            connection.abortConnection()

    def answer(self) -> None:
        """Answer the requests that hang as if there were no fault."""
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            self.root.redfish.answer(request)

    def use(self, identity: Issued) -> None:
        """Change the certificate of later connections."""
        self.identity = identity
        self._contexts.use(identity)

    @property
    def pin(self) -> str:
        return pin_of(self.identity)

    # Sessions.

    def expire(self) -> None:
        """End all sessions, as after their timeout or a restart of the BMC."""
        self.sessions.clear()

    def session_of(self, request: IRequest) -> Session | None:
        """The session of a request's token or cookie."""
        token = (request.getHeader("x-auth-token") or "").strip()
        session = self.sessions.get(token)
        if session is None:
            return None
        session.requests += 1
        if 0 < self.faults.token_dies_after < session.requests:
            del self.sessions[token]
            return None
        return session

    def log_in(self) -> Session:
        session = Session(f"S{next(self._ids)}", secrets.token_hex(16))
        self.sessions[session.token] = session
        self.logins += 1
        return session

    def document(self, path: str) -> Any:
        """The document at a path; ``None`` if there is none."""
        if path == SESSIONS:
            members = [{"@odata.id": f"{SESSIONS}/{each.id}"} for each in self.sessions.values()]
            return {"@odata.id": SESSIONS, "Members@odata.count": len(members), "Members": members}
        return self.documents.get(path)

    # Power.

    @property
    def system(self) -> str:
        """Path of the first system."""
        members = self.documents["/redfish/v1/Systems"]["Members"]
        path: str = members[0]["@odata.id"]
        return path

    @property
    def power(self) -> str:
        state: str = self.documents[self.system]["PowerState"]
        return state

    def set_power(self, state: str) -> None:
        """Switch the server, as its power button does."""
        self.documents[self.system]["PowerState"] = state
        self.power_changed(state)

    def reset(self, value: str) -> None:
        self.resets.append(value)
        if value == "GracefulShutdown" and self.faults.ignores_graceful:
            return
        self.set_power("Off" if value in _OFF else "On")


class _Root(Resource):
    """Everything below ``/redfish``, and children beside it."""

    def __init__(self, bmc: SmallBMC) -> None:
        super().__init__()
        self.redfish = _Redfish(bmc)

    def getChild(self, path: bytes, request: Any) -> IResource:
        return NoResource()

    def getChildWithDefault(self, path: bytes, request: Any) -> IResource:
        if path == b"redfish":
            return self.redfish
        child: IResource = super().getChildWithDefault(path, request)
        return child


class _Redfish(Resource):
    isLeaf = True

    def __init__(self, bmc: SmallBMC) -> None:
        super().__init__()
        self._bmc = bmc

    def render(self, request: Any) -> Any:
        method, path = request.method.decode(), request.path.decode()
        self._bmc.requests.append((method, path))
        fault = self._fault(request, names(method, path))
        return self._answer(request, method, path) if fault is None else fault

    def answer(self, request: Any) -> None:
        """Answer a request that has hung."""
        if request.channel is not None:
            request.write(self._answer(request, request.method.decode(), request.path.decode()))
            request.finish()

    def _answer(self, request: Any, method: str, path: str) -> bytes:
        request.setHeader("Content-Type", "application/json")
        if path == SESSIONS and method == "POST":
            return self._log_in(request)
        is_public = path == ROOT and method == "GET"
        is_known = self._bmc.session_of(request) is not None or (
            self._bmc.takes_basic
            and (request.getUser(), request.getPassword())
            == (USER.encode(), self._bmc.password.encode())
        )
        if not is_known and not is_public:
            return self._refuse(request, 401, "Base.1.8.NoValidSession")
        if path.startswith(f"{SESSIONS}/") and method == "DELETE":
            return self._delete(request, path)
        if path.endswith(_RESET) and method == "POST":
            return self._reset(request)
        document = self._bmc.document(path)
        if method != "GET" or document is None:
            return self._refuse(request, 404, "Base.1.8.ResourceMissingAtURI")
        return json.dumps(document).encode()

    def _fault(self, request: Any, found: tuple[str, ...]) -> Any:
        faults = self._bmc.faults
        for name in found:
            if name in faults.hangs:
                self._bmc.waiting.append(request)
                request.notifyFinish().addErrback(lambda _: None)
                return NOT_DONE_YET
            if name in faults.codes:
                return self._refuse(request, faults.codes[name], faults.message)
            if name in faults.redirects:
                request.setResponseCode(307)
                request.setHeader("Location", faults.redirects[name])
                return b""
            if name in faults.empty:
                return b""
            if name in faults.bodies:
                return faults.bodies[name]
            if name in faults.huge:
                _Huge(request)
                return NOT_DONE_YET
        return None

    def _refuse(self, request: Any, code: int, message_id: str) -> bytes:
        request.setResponseCode(code)
        return error(message_id)

    def _log_in(self, request: Any) -> bytes:
        body = json.loads(request.content.read() or b"{}")
        if (body.get("UserName"), body.get("Password")) != (USER, self._bmc.password):
            return self._refuse(request, 401, "Base.1.8.InsufficientPrivilege")
        if len(self._bmc.sessions) >= self._bmc.session_limit:
            return self._refuse(request, 503, self._bmc.faults.full)
        session = self._bmc.log_in()
        path = f"{SESSIONS}/{session.id}"
        request.setResponseCode(201)
        request.setHeader("X-Auth-Token", session.token)
        request.setHeader("Location", self._bmc.location or path)
        return json.dumps({"@odata.id": path, "Id": session.id, "UserName": USER}).encode()

    def _delete(self, request: Any, path: str) -> bytes:
        for token, session in self._bmc.sessions.items():
            if path == f"{SESSIONS}/{session.id}":
                del self._bmc.sessions[token]
                request.setResponseCode(204)
                return b""
        return self._refuse(request, 404, "Base.1.8.ResourceMissingAtURI")

    def _reset(self, request: Any) -> bytes:
        value = json.loads(request.content.read() or b"{}").get("ResetType", "")
        self._bmc.reset(value)
        request.setResponseCode(204)
        return b""


class _Huge:
    """Sends a body of 100 MB to one request, as fast as it is read."""

    def __init__(self, request: Any) -> None:
        self._request, self._left = request, _HUGE_BYTES
        request.notifyFinish().addErrback(lambda _: None)
        request.setHeader("Content-Type", "application/json")
        request.registerProducer(self, False)

    def resumeProducing(self) -> None:
        self._request.write(_PIECE)
        self._left -= len(_PIECE)
        if self._left <= 0:
            self._request.unregisterProducer()
            self._request.finish()

    def stopProducing(self) -> None:
        """The client has gone."""

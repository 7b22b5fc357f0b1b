"""
The one Redfish session of this program with a BMC.

BMCs have few sessions (Dell: 8) and end those that nobody deletes only after minutes. So a session
is on disk before it is used: a restarted runtime goes on with it, or deletes it. A login is never
abandoned half way, since it would leave a session that nobody knows.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, BadGateway, NotFound, ServiceUnavailable, Unauthorized
from twisted_exec.control.backoff import Backoff
from twisted_exec.program.state_files import from_document
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.password_file import read_password
from twisted_exec.runtimes.lines.redfish.client import (
    PASSWORD_EXPIRED,
    TOKEN_HEADER,
    Answer,
    Client,
    is_password_expired,
    refused,
)
from twisted_exec.runtimes.lines.redfish.documents import Document, local_path, text
from twisted_exec.runtimes.lines.redfish.websocket import SocketHeaders
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.private_files import write_private

SESSIONS = "/redfish/v1/SessionService/Sessions"

SESSION_LIMIT, NO_PASSWORD, LOGIN_REFUSED = "SessionLimit", "NoPassword", "LoginRefused"
"""Reasons of the machine's condition."""

_SET_BASIC = "set login: basic in the classes file, and reload the runtime"
_FULL = ("SessionLimitExceeded", "RAC0218")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_LOOK_SECONDS = 2.0  # from one look at the password file to the next, behind a refusal
_MAX_TOKEN = 4096
_DELETE_SECONDS = 5.0  # a machine that is stopped waits for it


@dataclass(frozen=True)
class Credentials:
    """
    Name and password of a user of a BMC.

    :param password_file: its first line is read for each login.
    """

    user: str
    password_file: str

    def password(self) -> str:
        """:raises CannotStart: the file cannot be read."""
        try:
            return read_password(self.password_file).decode("utf-8")
        except UnicodeDecodeError:
            raise CannotStart(NO_PASSWORD, f"{self.password_file} is not UTF-8") from None


@dataclass(frozen=True)
class Session:
    """
    A session of a BMC.

    :param path: to delete it; empty if the BMC did not say.
    :param user: whose rights it has.
    """

    token: str = field(repr=False)
    path: str = ""
    user: str = ""


class SessionFile:
    """
    The session of one BMC on disk, with mode 0600.

    :param path: empty to keep nothing.
    """

    _log = Logger()

    def __init__(self, path: str = "") -> None:
        self.path = path

    def load(self) -> Session | None:
        """Return the session of an earlier runtime; ``None`` if there is none that can be read."""
        if not self.path or not os.path.exists(self.path):
            return None
        try:
            session = from_document(Session, json.loads(read_file(self.path)))
        except (TLSConfigError, ValueError, TypeError):
            return None
        return session if isinstance(session.token, str) and _is_token(session.token) else None

    def save(self, session: Session) -> None:
        if self.path:
            try:
                write_private(self.path, json.dumps(asdict(session)).encode())
            except TLSConfigError as problem:
                # Without the file everything works but for a kill of the runtime.
                self._log.warn("a BMC's session is not kept: {why}", why=problem)

    def remove(self) -> None:
        if self.path:
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                pass
            except OSError as error:
                self._log.warn("{path}: {why}", path=self.path, why=error.strerror)


class Sessions:
    """
    Requests to one BMC within a session.

    :param basic: send name and password with each request instead, for BMCs without sessions.
    :ivar problem: why the last login failed; ``None`` if it did not.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        credentials: Credentials,
        file: SessionFile,
        clock: IReactorTime,
        *,
        basic: bool = False,
    ) -> None:
        self._client, self._credentials, self._file = client, credentials, file
        self._clock, self._basic = clock, basic
        self._session: Session | None = None
        self._is_loaded = self._is_closed = False
        self._deleting = DeferredLock()  # held while the session is deleted, and by close()
        self._is_logging_in = False
        self._waiters: list[Deferred[None]] = []
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._not_before = 0.0
        self._refused_password = ""
        self.problem: APIError | None = None

    # Requests.

    async def get(self, path: str) -> Document:
        """
        Return a document.

        :raises APIError: see :meth:`send`; ``NotFound`` if there is none.
        """
        answer = await self.send("GET", path)
        try:
            return answer.document()
        except BadGateway as problem:
            raise BadGateway(
                f"{problem.message} (GET {path}): restart the BMC if its own page does not work either"
            ) from None

    async def send(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Answer:
        """
        Send a request within the session, after one new login if the session has ended.

        :return: the answer, which is a success.
        :raises CannotStart: no login is possible, or a new session is refused as well. The next login waits then.
        :raises APIError: the BMC cannot be reached, or refuses the request.
        """
        if self._basic:
            answer = await self._send_basic(method, path, body)
        else:
            answer = await self._send_in_session(method, path, body)
            if answer.code == Unauthorized.code:
                answer = await self._send_in_session(method, path, body)
            if answer.code == Unauthorized.code or is_password_expired(answer):
                raise self._session_refused(answer, method, path)
        if not answer.is_success:
            raise refused(answer, method, path)
        return answer

    async def token(self) -> str:
        """
        Return the session's token, after a login if there is no session.

        To cancel this does not cancel the login.

        :raises APIError: see :meth:`send`; ``ServiceUnavailable`` behind :meth:`close`.
        """
        async with self._deleting:  # a session that is being deleted is of no use
            self._load()
            await self._end_of_other_user()
        while self._session is None:
            if not self._is_logging_in:
                await self._pause()
            if self._session is None:
                if self._is_closed:
                    raise ServiceUnavailable("the session with the BMC is closed")
                waiter: Deferred[None] = Deferred()
                self._waiters.append(waiter)
                if not self._is_logging_in:
                    self._begin_login()
                await waiter
        return self._session.token

    # SocketSession of websocket.

    async def socket_headers(self) -> SocketHeaders:
        if self._basic:
            name, value = self._basic_header(self._credentials.password())
            return SocketHeaders([(name.encode(), value.encode())])
        return SocketHeaders.of_token(await self.token())

    async def session_refused(self, headers: SocketHeaders) -> None:
        async with self._deleting:
            session = self._session
            if session is not None and SocketHeaders.of_token(session.token) == headers:
                # Not only forgotten: the session may be good for all but the console.
                await self._delete(session)

    # The end.

    @property
    def is_waiting(self) -> bool:
        """True while a login must wait because the last one failed."""
        return bool(self._not_before > self._clock.seconds())

    def open(self) -> None:
        """Allow logins again; a session that :meth:`close` has not begun to delete is kept."""
        self._is_closed = False

    async def close(self) -> None:
        """
        Delete the session, behind a login that is under way; there is no other until :meth:`open`.

        A BMC that does not answer leaves the session on disk, for a later runtime.
        """
        self._is_closed = True
        async with self._deleting:
            self._load()
            if self._is_logging_in:
                waiter: Deferred[None] = Deferred()
                self._waiters.append(waiter)
                waiter.addErrback(lambda _: None)
                await waiter
            session = self._session
            if session is not None and self._is_closed:
                await self._delete(session)
            if self._is_closed:
                await self._client.close()

    async def _delete(self, session: Session) -> None:
        if not session.path:
            return  # it is used again, or ends by itself
        try:
            answer = await self._client.send(
                "DELETE",
                session.path,
                headers=[(TOKEN_HEADER, session.token)],
                timeout_seconds=_DELETE_SECONDS,
            )
        except APIError as problem:
            self._log.warn("a BMC's session is not deleted yet: {why}", why=problem.message)
            return
        if answer.is_success or answer.code in (Unauthorized.code, NotFound.code):
            self._forget()
        else:
            refusal = refused(answer, "DELETE", session.path)
            self._log.warn("a BMC's session is not deleted: {why}", why=refusal.message)

    # Inner parts.

    async def _end_of_other_user(self) -> None:
        """Delete the session of an earlier runtime that had another user; its token may do that."""
        session = self._session
        if session is None or session.user == self._credentials.user:
            return
        if session.path:
            answer = await self._send_with(session.token, "DELETE", session.path, None)
            if not (answer.is_success or answer.code in (Unauthorized.code, NotFound.code)):
                raise refused(answer, "DELETE", session.path)
        self._forget()

    def _load(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self._session = self._file.load()

    def _forget(self) -> None:
        self._session = None
        self._file.remove()

    async def _send_in_session(
        self, method: str, path: str, body: Mapping[str, object] | None
    ) -> Answer:
        """Send a request; a session that the BMC refuses is deleted, so that it takes no other's place."""
        token = await self.token()
        answer: Answer = await self._send_with(token, method, path, body)
        if answer.code == Unauthorized.code or is_password_expired(answer):
            async with self._deleting:
                session = self._session
                if session is not None and session.token == token:
                    await self._delete(session)
                    if not session.path:
                        self._forget()
        return answer

    def _session_refused(self, answer: Answer, method: str, path: str) -> CannotStart:
        """Let the next login wait, since the BMC refuses what a new session asks for; return the error."""
        with suppress(CannotStart):
            self._refused_password = self._credentials.password()
        self._not_before = self._clock.seconds() + _LONGEST_PAUSE_SECONDS
        if is_password_expired(answer):
            self.problem = self._expired()
        else:
            self.problem = CannotStart(
                LOGIN_REFUSED,
                f"the BMC accepts the login of user {self._credentials.user}, but refuses its session: "
                f"{refused(answer, method, path).message}; see the rights of the user there; it is tried again in "
                f"{_LONGEST_PAUSE_SECONDS:g} s",
            )
        return self.problem

    def _expired(self) -> CannotStart:
        return CannotStart(
            LOGIN_REFUSED,
            f"the password of user {self._credentials.user} has expired ({PASSWORD_EXPIRED}): set a new one at the "
            f"BMC, and write it to {self._credentials.password_file}; it is tried again when that has changed, or in "
            f"{_LONGEST_PAUSE_SECONDS:g} s",
        )

    def _send_with(
        self, token: str, method: str, path: str, body: Mapping[str, object] | None
    ) -> Any:
        return self._client.send(method, path, body=body, headers=[(TOKEN_HEADER, token)])

    async def _send_basic(
        self, method: str, path: str, body: Mapping[str, object] | None
    ) -> Answer:
        await self._pause()
        password = self._credentials.password()
        header = self._basic_header(password)
        answer: Answer = await self._client.send(method, path, body=body, headers=[header])
        if answer.code == Unauthorized.code or is_password_expired(answer):
            self.problem = self._refusal(answer, password)
            self._not_before = self._clock.seconds() + _LONGEST_PAUSE_SECONDS
            raise self.problem
        self.problem, self._not_before = None, 0.0
        return answer

    def _refusal(self, answer: Answer, password: str) -> CannotStart:
        """Note that the BMC refuses a password; return the error."""
        self._refused_password = password
        if is_password_expired(answer):
            return self._expired()
        ids = answer.message_ids()
        code = f"{answer.code}, {ids[0]}" if ids else f"{answer.code}"
        remedy = "" if self._basic else f"; if the BMC has no sessions, {_SET_BASIC}"
        return CannotStart(
            LOGIN_REFUSED,
            f"the BMC refuses the login of user {self._credentials.user} ({code}): see "
            f"{self._credentials.password_file}; it is tried again when that has changed, or in "
            f"{_LONGEST_PAUSE_SECONDS:g} s{remedy}",
        )

    def _basic_header(self, password: str) -> tuple[str, str]:
        pair = f"{self._credentials.user}:{password}".encode()
        return "authorization", "Basic " + base64.b64encode(pair).decode("ascii")

    async def _pause(self) -> None:
        # A wrong password, tried again and again, locks the account of many BMCs; a new one is
        # tried at once.
        while (seconds := self._not_before - self._clock.seconds()) > 0:
            if self._refused_password and self._credentials.password() != self._refused_password:
                self._refused_password = ""
                return
            await deferLater(self._clock, min(seconds, _LOOK_SECONDS))

    def _begin_login(self) -> None:
        self._is_logging_in = True
        Deferred.fromCoroutine(self._log_in()).addBoth(self._logged_in)

    def _logged_in(self, result: object) -> None:
        self._is_logging_in = False
        if isinstance(result, Failure):
            self.problem = result.value if isinstance(result.value, APIError) else None
            seconds = self._backoff.pause()
            if isinstance(result.value, CannotStart) and result.value.condition == LOGIN_REFUSED:
                seconds = _LONGEST_PAUSE_SECONDS
            self._not_before = self._clock.seconds() + seconds
        else:
            self.problem = None
            self._backoff.reset()
            self._not_before = 0.0
            self._refused_password = ""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.called:
                waiter.callback(result)  # type: ignore[arg-type]

    async def _log_in(self) -> None:
        password = self._credentials.password()
        user = {"UserName": self._credentials.user, "Password": password}
        answer = await self._client.send("POST", SESSIONS, body=user)
        if answer.is_success:
            if not _is_token(answer.token):
                raise BadGateway(f"the BMC accepts the login, but gives no token; {_SET_BASIC}")
            self._session = Session(answer.token, self._path_of(answer), self._credentials.user)
            self._file.save(self._session)
            return
        ids = answer.message_ids()
        if any(each.endswith(full) for each in ids for full in _FULL):
            raise CannotStart(
                SESSION_LIMIT,
                f"the BMC has no session left ({answer.code}, {ids[0]}); this runtime waits for one: "
                "end sessions of other programs, or let them expire",
            )
        if answer.code in (Unauthorized.code, 403):
            raise self._refusal(answer, password)
        if answer.code == NotFound.code:
            raise ServiceUnavailable(f"the BMC has no sessions; {_SET_BASIC}")
        raise refused(answer, "POST", SESSIONS)

    def _path_of(self, answer: Answer) -> str:
        """Return the session's path; empty if the BMC names none of its own."""
        try:
            parts = urlsplit(answer.location)
        except ValueError:
            parts = urlsplit("")
        location = parts.path if not parts.netloc or parts.hostname == self._client.host else ""
        try:
            return local_path(location or text(answer.document(), "@odata.id", most=1024))
        except BadGateway:
            return ""


def _is_token(token: str) -> bool:
    """Return whether a token can be a header's value."""
    return 0 < len(token) <= _MAX_TOKEN and token.isascii() and token.isprintable()

"""
The file that says who may log in with ssh::

    authorities:              # of user certificates
    - keys: user_ca.pub       # public keys, a line each
      groups: [people]        # of all whom they certify
    users:
    - user: ada
      groups: [operators]
      keys:
      - ssh-ed25519 AAAA... ada@laptop
      - {key: ssh-ed25519 AAAA..., expires: "2027-01-31T00:00:00Z"}
    revoked: revoked.krl      # a KRL of ssh-keygen -k, or lines of public keys

Paths are relative to the file's directory.  All parts are optional, but there must be an authority or a user.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from weakref import WeakKeyDictionary

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.program.config_file import ConfigError, Reader, parse_document
from twisted_exec.ssh.certificate import (
    CertificateError,
    is_certificate,
    read_certificate,
)
from twisted_exec.ssh.people import (
    Credential,
    IPeople,
    LoginRefused,
    Person,
    UnknownKey,
    name_problem,
)
from twisted_exec.ssh.public_keys import PublicKeyError, fingerprint, key_blob, key_lines
from twisted_exec.ssh.revocation import RevocationError, RevocationList, parse_revocations
from twisted_exec.ssh.user_certificate import certificate_text, certified_user
from twisted_exec.ssh.user_signature import is_algorithm_of
from twisted_exec.tls.files import regular, write_problem

LOOK_SECONDS = 0.5
MOST_KEYS = 100_000
MOST_GROUPS = 64
_MOST_FILE_BYTES = 16 << 20
_MOST_AUTHORITIES = 100

CLOSED = "nobody can log in for now: the operator of this server has to mend its list of users"
REVOKED = "your ssh key or certificate is revoked; get a new one"
EXPIRED = "your login has expired; get a new certificate or key"
OTHER_GROUPS = "your groups have changed; log in again"
GONE = "your ssh key is not known here any more"

_Stamp = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class _Key:
    user: str
    groups: tuple[str, ...]
    expires: float | None


@dataclass(frozen=True)
class Logins:
    """
    What the files say.

    :param authorities: the groups of each authority, by its public key.
    :param keys: users by their public keys.
    """

    authorities: Mapping[bytes, tuple[str, ...]] = field(default_factory=dict)
    keys: Mapping[bytes, _Key] = field(default_factory=dict)
    revoked: RevocationList = field(default_factory=RevocationList)

    def identify(self, credential: Credential, now: float) -> Person:
        """
        Return the owner of a key or certificate.

        :raises LoginRefused: as :meth:`IPeople.identify`.
        """
        if not is_algorithm_of(credential.algorithm, credential.key_blob):
            raise UnknownKey(GONE)
        if is_certificate(credential.key_blob):
            return self._certified(credential, now)
        key = self.keys.get(credential.key_blob)
        if key is None:
            raise UnknownKey(GONE)
        if self.revoked.revokes_key(credential.key_blob):
            raise LoginRefused(REVOKED, key.user)
        if key.expires is not None and now >= key.expires:
            raise LoginRefused(EXPIRED, key.user)
        shown = fingerprint(credential.key_blob)
        return Person(key.user, key.groups, shown, "", key.expires, credential=credential)

    def _certified(self, credential: Credential, now: float) -> Person:
        try:
            certificate = read_certificate(credential.key_blob)
        except CertificateError as error:
            # Also if its authority is known: the signature does not show that it has made it.
            raise UnknownKey(str(error)) from None
        groups = self.authorities.get(certificate.authority)
        if groups is None:
            raise UnknownKey("the authority of your ssh certificate is not known here any more")
        if self.revoked.revokes(certificate):
            raise LoginRefused(REVOKED)
        user = certified_user(certificate, credential.source_address, now)
        return Person(
            user,
            groups,
            fingerprint(bytes(certificate.key.blob())),
            certificate_text(certificate),
            certificate.valid_before,
            credential=credential,
        )


@implementer(IPeople)
class LoginFile(Service):
    """
    The users of a file, and of the files that it names.  They are read again when one changes, in a thread.

    While a file cannot be used, nobody logs in; the sessions that are open stay, as nothing says which must end.

    :param reactor: with threads.
    """

    _log = Logger()

    def __init__(self, path: str, reactor: IReactorTime) -> None:
        self._path, self._clock = path, reactor
        self._logins = Logins()
        self._stamp: _Stamp = ()
        self._problem = CLOSED  # empty if the files can be used
        self._generation = 0
        self._checked: WeakKeyDictionary[Credential, int] = WeakKeyDictionary()
        self._looking: LoopingCall | None = None

    def load(self) -> None:
        """
        Read the files, when the program starts.

        :raises ConfigError: they cannot be used.
        """
        result = read_logins(self._path)
        if isinstance(result.logins, ConfigError):
            raise result.logins
        self._take(result)

    def startService(self) -> None:
        super().startService()
        self._looking = LoopingCall(self.look)
        self._looking.clock = self._clock
        self._looking.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._looking is not None and self._looking.running:
            self._looking.stop()

    def look(self) -> Deferred[None]:
        """Read the files if one has changed; fire when that is done."""
        return deferToThread(self._read).addCallback(self._take).addErrback(self._failed)

    def _read(self) -> Reading | None:
        """Return what the files say, or ``None`` if none has changed."""
        if stamp_of(path for path, *_ in self._stamp) == self._stamp:
            return None
        return read_logins(self._path)

    def _take(self, reading: Reading | None) -> None:
        if reading is None:
            return
        self._stamp = reading.stamp
        if isinstance(reading.logins, ConfigError):
            if self._problem != str(reading.logins):
                self._problem = str(reading.logins)
                self._log.error("nobody can log in with ssh: {problem}", problem=self._problem)
            return
        self._logins, self._problem = reading.logins, ""
        self._generation += 1
        self._log.info("read {path}", path=self._path)

    def _failed(self, failure: Failure) -> None:
        # A bug must not stop the looking, nor let in somebody who is withdrawn.
        self._problem = CLOSED
        self._log.failure("nobody can log in with ssh", failure)

    def identify(
        self, algorithm: bytes, key_blob: bytes, source_address: str, now: float
    ) -> Person:
        person = self._logins.identify(Credential(algorithm, key_blob, source_address), now)
        if self._problem:
            raise LoginRefused(CLOSED, person.user)
        self._checked[person.credential] = self._generation
        return person

    def problem(self) -> str:
        return self._problem

    def reason_to_end(self, person: Person, now: float) -> str | None:
        if person.expires is not None and now >= person.expires:
            return EXPIRED
        if self._checked.get(person.credential) == self._generation:
            return None
        try:
            present = self._logins.identify(person.credential, now)
        except LoginRefused as refused:
            return str(refused)
        if (present.user, present.groups) != (person.user, person.groups):
            return OTHER_GROUPS
        self._checked[person.credential] = self._generation
        return None


def stamp_of(paths: Iterable[str]) -> _Stamp:
    """Return what differs after one of the files has changed."""
    stamps = []
    for path in paths:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            stamps.append((path, 0, 0, 0))
        else:
            stamps.append((path, status.st_ino, status.st_ctime_ns, status.st_size))
    return tuple(stamps)


@dataclass(frozen=True)
class Reading:
    """
    One reading of the files.

    :param logins: what they say, or why they cannot be used.
    :param stamp: of all that were read, from before that.
    """

    logins: Logins | ConfigError
    stamp: _Stamp


def read_logins(path: str) -> Reading:
    """Read the file, and those that it names."""
    files = _Files(path)
    logins: Logins | ConfigError
    try:
        logins = _logins(files, path)
    except ConfigError as error:
        logins = error
    return Reading(logins, tuple(files.stamps))


def _logins(files: _Files, path: str) -> Logins:
    reader = Reader(parse_document(files.read(path), path), path)
    authorities: dict[bytes, tuple[str, ...]] = {}
    keys: dict[bytes, _Key] = {}
    for index, each in enumerate(reader.take("authorities", list, [])):
        _read_authority(Reader(each, f"{path}: authorities[{index}]"), files, authorities)
    for index, each in enumerate(reader.take("users", list, [])):
        _read_user(Reader(each, f"{path}: users[{index}]"), keys)
    revoked = reader.take("revoked", str, "")
    reader.done()
    if not authorities and not keys:
        raise ConfigError(f"{path} has neither authorities nor users")
    try:
        revocations = parse_revocations(files.read(revoked)) if revoked else RevocationList()
    except RevocationError as error:
        raise ConfigError(f"{revoked}: {error}") from None
    return Logins(authorities, keys, revocations)


def _read_authority(
    reader: Reader, files: _Files, authorities: dict[bytes, tuple[str, ...]]
) -> None:
    path, groups = reader.take("keys", str), _groups(reader)
    reader.done()
    try:
        blobs = key_lines(files.read(path).decode(), _MOST_AUTHORITIES)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text") from None
    except PublicKeyError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not blobs:
        raise ConfigError(f"{path} has no public key")
    for blob in blobs:
        if blob in authorities:
            raise reader.error(f"the authority {fingerprint(blob)} is there already")
        authorities[blob] = groups


def _read_user(reader: Reader, keys: dict[bytes, _Key]) -> None:
    user, groups = reader.take("user", str), _groups(reader)
    if problem := name_problem(user):
        raise reader.error(f"the name {user!r} {problem}", "user")
    lines = reader.take("keys", list)
    reader.done()
    for index, each in enumerate(lines):
        expires: float | None = None
        where = f"{reader.where}: keys[{index}]"
        if isinstance(each, dict):
            entry = Reader(each, where)
            line, expires = entry.take("key", str), _time(entry)
            entry.done()
        elif isinstance(each, str):
            line = each
        else:
            raise ConfigError(f"{where} must be a line of a .pub file")
        try:
            blob = key_blob(line)
        except PublicKeyError as error:
            raise ConfigError(f"{where}: {error}") from None
        if blob in keys:
            raise ConfigError(f"{where}: the key {fingerprint(blob)} is there already")
        if len(keys) >= MOST_KEYS:
            raise ConfigError(f"{where}: there are more than {MOST_KEYS} keys")
        keys[blob] = _Key(user, groups, expires)


def _groups(reader: Reader) -> tuple[str, ...]:
    groups = reader.take("groups", list, [])
    if len(groups) > MOST_GROUPS:
        raise reader.error(f"there are more than {MOST_GROUPS} groups", "groups")
    for each in groups:
        if not isinstance(each, str):
            raise reader.error(f"the group {each!r} must be a string", "groups")
        if problem := name_problem(each):
            raise reader.error(f"the group {each!r} {problem}", "groups")
    return tuple(dict.fromkeys(groups))


def _time(reader: Reader) -> float:
    text = reader.take("expires", str)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise reader.error(f"{text!r} is no time such as 2027-01-31T00:00:00Z", "expires")
    return time.timestamp()


class _Files:
    """
    The files of one reading; names are relative to the directory of the first.

    :ivar stamps: of each, from before its reading.
    """

    def __init__(self, path: str) -> None:
        self._directory = os.path.dirname(path)
        self.stamps: list[tuple[str, int, int, int]] = []

    def read(self, path: str) -> bytes:
        """
        Return the content of a file.

        :raises ConfigError: it cannot be read, is too large, or changes meanwhile.
        """
        path = os.path.join(self._directory, path) if self.stamps else path
        stamp = stamp_of([path])
        self.stamps += stamp
        try:
            with open(path, "rb", opener=regular) as file:
                if problem := write_problem(path, os.fstat(file.fileno())):
                    raise ConfigError(problem)
                content = file.read(_MOST_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        if len(content) > _MOST_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {_MOST_FILE_BYTES >> 20} MiB")
        if stamp_of([path]) != stamp:
            raise ConfigError(f"{path} changes just now")
        return content

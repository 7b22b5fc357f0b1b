"""
Lines of a class that a file lists: ``lines_from``, for drivers of BMCs.

::

    - name: server
      driver: ipmi
      user: console
      password_file: /etc/twisted-exec/ipmi/password
      lines_from: /var/lib/exec-racks/rack-7.csv
      networks: [10.0.1.0/24]
      capabilities: {cpu: "16", memory: 64Gi}

:mod:`twisted_exec.program.server_list` has the form of the file.  A row says which server has which name, and nothing
else: all other keys are those of the class, and an address outside of its networks is refused.  So whoever writes
the file cannot have a password sent to a host of their own.

The file is read again when it changes.  If it cannot be used as a whole, all lines stay as they are; a row that is wrong
leaves the line of its name as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import inf
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.yaml_reader import PlacedMapping
from twisted_exec.control.loop import PokedLoop
from twisted_exec.program.config_file import ConfigError, Reader
from twisted_exec.program.server_list import MAX_SERVERS, NoServers, Server, read_servers
from twisted_exec.runtimes.interfaces import CannotStart, IProbed, MachineFacts
from twisted_exec.runtimes.lines.lines import Claim, Lines, names_of

_Options = TypeVar("_Options")

LOOK_SECONDS = 2.0
"""From one look at the file to the next, while a machine uses the list."""
SETTLE_SECONDS = 0.5
"""How long a file must not change before it is read."""
_MOST_LOGGED = 20

_Network = IPv4Network | IPv6Network
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class _Content(Generic[_Options]):
    """
    A list as read.

    :param refused: the names and the errors of other rows, with file and line.
    :param reserved: the addresses of the lines.
    """

    lines: Mapping[str, _Options] = field(default_factory=dict)
    servers: Mapping[str, Server] = field(default_factory=dict)
    refused: Sequence[tuple[str, str]] = ()
    reserved: Mapping[object, Reader] = field(default_factory=dict)


def _place(server: Server) -> tuple[str, str, str]:
    return server.name, server.address, server.system


class LineList(Mapping[str, _Options]):
    """
    The lines in a file, by name.

    :param make: reads the options of one line from a reader with the keys ``address`` and ``system``, and returns
        them; what a class has for all lines is already in it.
    :param keys: names for ``address`` and ``system`` in the driver's lines; the second one is empty if the driver
        knows no systems.
    :param reserved: the addresses that all classes reserve; kept current.
    :ivar problem: why the present content of the file is not used; empty if it is.
    """

    _log = Logger()

    def __init__(
        self,
        path: str,
        networks: Sequence[_Network],
        make: Callable[[Reader], _Options],
        keys: tuple[str, str],
        reserved: dict[object, Reader],
    ) -> None:
        self.path = path
        self._networks, self._make, self._keys, self._reserved = networks, make, keys, reserved
        self._content: _Content[_Options] = _Content()
        self._logged: Sequence[tuple[str, str]] = ()
        self._stamp: _Stamp | None = None
        self.problem = ""

    def __getitem__(self, name: str) -> _Options:
        return self._content.lines[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content.lines)

    def __len__(self) -> int:
        return len(self._content.lines)

    def refusal(self, names: Sequence[str]) -> str:
        """Return the error of the first refused row with one of these names; empty if there is none."""
        refused = self._content.refused
        return next((problem for name, problem in refused if name in names), "")

    def stamp(self) -> _Stamp:
        """Return what differs after the file, or who may read it, was changed."""
        try:
            status = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return (status.st_ino, status.st_ctime_ns, status.st_size)

    @property
    def is_current(self) -> bool:
        """Whether the file is as it was when it was read last."""
        return self.stamp() == self._stamp

    def reading(self) -> Callable[[], Callable[[], None]]:
        """
        Return a function for a thread, which reads the file and returns a function for the reactor: that takes over
        the content.
        """
        others = {
            address: reader
            for address, reader in self._reserved.items()
            if self._content.reserved.get(address) is not reader
        }
        return partial(self._read, self._content, others)

    def _read(
        self, before: _Content[_Options], others: Mapping[object, Reader]
    ) -> Callable[[], None]:
        stamp = self.stamp()  # before reading: a concurrent write causes another look
        try:
            content = self._merged(before, dict(others))
        except NoServers as problem:
            remedy = "if all are gone, delete their Machines, and reload the runtime"
            return partial(self._keep, stamp, f"{problem}; {remedy}")
        except ConfigError as problem:
            return partial(self._keep, stamp, str(problem))
        return partial(self._take, stamp, content)

    def _merged(
        self, before: _Content[_Options], reserved: dict[object, Reader]
    ) -> _Content[_Options]:
        others = dict(reserved)
        read = read_servers(self.path)
        refused = list(read.refused)
        allowed: list[tuple[Server, Reader]] = []
        for server in read.servers:
            reader = self._reader(server, reserved)
            try:
                self._check_network(server, reader)
            except ConfigError as problem:
                refused.append((server.name, str(problem)))
            else:
                allowed.append((server, reader))
        places = {_place(each) for each in before.servers.values()}
        # The line of a wrong row, and one that has not changed, stays before another row can take its address.
        changed = {each.name for each, _ in allowed if _place(each) not in places}
        kept = {each.name for each, _ in allowed} | {name for name, _ in refused}
        kept = (kept - changed).intersection(before.lines)
        had: dict[str, dict[object, Reader]] = {}
        for address, earlier in before.reserved.items():
            had.setdefault(earlier.name, {})[address] = earlier
        for name in kept:
            reserved.update(had.get(name, {}))
        lines = {name: before.lines[name] for name in before.lines if name in kept}
        servers = {name: before.servers[name] for name in lines}
        for server, reader in allowed:
            if server.name not in kept:
                try:
                    lines[server.name] = self._make(reader)
                    reader.done()
                except ConfigError as problem:
                    refused.append((server.name, str(problem)))
                    old = had.get(server.name, {})
                    if server.name in before.lines and not old.keys() & reserved.keys():
                        reserved.update(old)
                        lines[server.name] = before.lines[server.name]
                        servers[server.name] = before.servers[server.name]
                else:
                    servers[server.name] = server
        mine = {
            address: reader
            for address, reader in reserved.items()
            if others.get(address) is not reader
        }
        return _Content(lines, servers, refused, mine)

    def _reader(self, server: Server, reserved: dict[object, Reader]) -> Reader:
        address_key, system_key = self._keys
        document = PlacedMapping(server.line)
        document[address_key] = server.address
        if system_key and server.system:
            document[system_key] = server.system
        reader = Reader(document, f"{self.path}: {server.name}", reserved)
        reader.name = server.name
        return reader

    def _check_network(self, server: Server, reader: Reader) -> None:
        address = ip_address(server.address)
        if not any(address in network for network in self._networks):
            shown = ", ".join(map(str, self._networks))
            raise reader.error(
                f"{address} is in none of the networks of the class ({shown}); correct the address, or "
                "add its network to the class"
            )

    def _keep(self, stamp: _Stamp, problem: str) -> None:
        self._stamp = stamp
        if problem != self.problem:
            self._log.warn("the lines stay as they are: {problem}", problem=problem)
        self.problem = problem

    def _take(self, stamp: _Stamp, content: _Content[_Options]) -> None:
        self._stamp = stamp
        for address in self._content.reserved:
            self._reserved.pop(address, None)
        self._reserved.update(content.reserved)
        self._content, self.problem = content, ""
        self._log.info("{path} is read; lines: {count}", path=self.path, count=len(content.lines))
        if content.refused != self._logged:
            for _, problem in content.refused[:_MOST_LOGGED]:
                self._log.warn("row refused: {problem}", problem=problem)
            more = len(content.refused) - _MOST_LOGGED
            if more > 0:
                self._log.warn("{path}: {more} more rows refused", path=self.path, more=more)
        self._logged = content.refused


def bmc_lines(
    reader: Reader, make: Callable[[Reader], _Options], keys: tuple[str, str]
) -> Mapping[str, _Options]:
    """
    Return the lines of a class of BMCs: those under ``lines``, or those of the file ``lines_from``.

    :param make: see :class:`LineList`; for ``lines``, a line may have more keys.
    :raises ConfigError: a key of the class or a line under ``lines`` is wrong. A wrong file is only logged: another
        program may write it, and the other classes do not depend on it.
    """
    path = reader.take("lines_from", str, "")
    written = reader.take("networks", list, [])
    if not path:
        if written:
            raise reader.error("networks is for lines_from only; remove it", "networks")
        return {name: make(line_reader) for name, line_reader in reader.lines().items()}
    if reader.has("lines"):
        raise reader.error("give lines or lines_from, not both", "lines_from")
    if not path.startswith("/"):
        raise reader.error(f"lines_from {path!r} is not an absolute path", "lines_from")
    reader.quantity = MAX_SERVERS
    networks = _networks(reader, written)
    # A mistake in the class would refuse each row.
    example = PlacedMapping(0)
    example[keys[0]] = str(networks[0].network_address)
    make(Reader(example, reader.where))
    lines = LineList(path, networks, make, keys, reader.reserved)
    lines.reading()()()
    return lines


def _networks(reader: Reader, written: Sequence[object]) -> Sequence[_Network]:
    if not written:
        raise reader.error(
            "networks is missing: with lines_from, the networks that the addresses may be in, such as "
            "[10.0.1.0/24]"
        )
    networks: list[_Network] = []
    for each in written:
        try:
            networks.append(ip_network(str(each)))
        except ValueError as problem:
            raise reader.error(f"networks: {problem}", "networks") from None
    return networks


@dataclass
class _User(Generic[_Options]):
    """
    A machine that uses the list.

    :ivar options: those of the line that it has connected to last, or tries to.
    :ivar tried: the options that it had at the last attempt; ``None`` if it had no line.
    :ivar endpoint: of the last attempt; ``None`` if the line could not be claimed.
    :ivar opening: the attempt that is under way.
    :ivar link: the last connection.
    :ivar dropped: why the attempt has ended, if its line was changed or removed.
    """

    facts: MachineFacts
    name: str
    options: _Options
    tried: _Options | None = None
    endpoint: IStreamClientEndpoint | None = None
    opening: Deferred[Any] | None = None
    link: Any = None
    dropped: CannotStart | None = None

    def drop(self, why: CannotStart) -> None:
        """End the connection, or the attempt."""
        self.dropped = why
        if self.opening is not None:
            self.opening.cancel()
        elif self.link is not None:
            self.link.drop(why)


class ListedLines(Lines[_Options]):
    """
    The lines of a list, read again while machines use them.

    A line that is changed or removed loses its connection; the machine then waits for the new one, or for the line to be
    listed again.

    :param changed: called for a machine each time that its row was changed or removed, with the reason; also if it has
        not tried to connect since the last time.
    """

    def __init__(
        self,
        lines: LineList[_Options],
        reactor: Any,
        changed: Callable[[MachineFacts, CannotStart], None],
    ) -> None:
        super().__init__(lines)
        self._list, self._reactor, self._changed = lines, reactor, changed
        self._seen = lines.stamp()
        self._loop = PokedLoop(self._look, reactor)
        self._users: dict[str, _User[_Options]] = {}  # by the ids of machines

    def endpoint(self, facts: MachineFacts, claim: Claim) -> tuple[str, IStreamClientEndpoint]:
        """See :meth:`Lines.endpoint`."""
        # A machine without a line is tried again later; that look is the cause to read the file.
        self._loop.start()
        self._loop.poke(SETTLE_SECONDS)
        name, _ = claim(facts)
        self._users[facts.id] = _User(facts, name, self._list[name])
        return name, _CurrentEndpoint(self, facts, claim)

    def release(self, facts: MachineFacts) -> None:
        super().release(facts)
        self._users.pop(facts.id, None)
        if not self._users and self._list.is_current:
            self._loop.stop()

    async def open(self, facts: MachineFacts, claim: Claim, factory: IProtocolFactory) -> Any:
        """
        Connect a machine to its present line.

        :raises CannotStart: it has none, or that has changed meanwhile.
        """
        user = self._users[facts.id]
        user.tried, user.endpoint = self.options_of(facts), None
        user.name, user.endpoint = claim(facts)
        user.options = self._list[user.name]
        user.link = user.dropped = None
        user.opening = user.endpoint.connect(factory)
        try:
            user.link = await user.opening
        except Exception:
            if user.dropped is not None:
                raise user.dropped from None
            raise
        finally:
            user.opening = None
        if user.dropped is not None:  # it could not be cancelled any more
            user.link.drop(user.dropped)
            raise user.dropped
        return user.link

    async def has_come_back(self, facts: MachineFacts) -> bool:
        """Return true if a machine has another line than at its last attempt, or the far end of its line is back."""
        user, present = self._users[facts.id], self.options_of(facts)
        if present != user.tried:
            return present is not None
        probed: Any = user.endpoint
        return IProbed.providedBy(probed) and await probed.has_come_back()

    def _change(self, name: str, options: _Options) -> CannotStart | None:
        """Return what has become of a line; ``None`` if it is as it was."""
        present = self._list.get(name)
        if present is None:
            return self._removed()
        if present != options:
            return CannotStart(
                "LineChanged", f"the operator has changed its row in the list {self._list.path}"
            )
        return None

    def _removed(self) -> CannotStart:
        return CannotStart(
            "NoLine", f"the operator has removed its row from the list {self._list.path}"
        )

    async def _look(self) -> float:
        if not self._list.is_current:
            seen, self._seen = self._seen, self._list.stamp()
            if self._seen != seen:
                return SETTLE_SECONDS  # somebody may be writing it
            pool = self._reactor.getThreadPool()
            take = await deferToThreadPool(self._reactor, pool, self._list.reading())
            take()
            self._drop_changed()
        return LOOK_SECONDS if self._users else inf

    def _drop_changed(self) -> None:
        for user in list(self._users.values()):
            why = self._change(user.name, user.options)
            if why is not None:
                self._changed(user.facts, why)
                if user.dropped is None:
                    user.drop(why)

    def _no_line(self, facts: MachineFacts) -> CannotStart:
        if problem := self._list.problem:
            return CannotStart(
                "ListRefused",
                f'no line is called "{facts.label}", and the list is not used: {problem}',
            )
        if problem := self._list.refusal(names_of(facts)):
            return CannotStart("RowRefused", f'the row of "{facts.label}" is refused: {problem}')
        return self._removed() if facts.id in self._users else super()._no_line(facts)


@implementer(IStreamClientEndpoint, IProbed)
class _CurrentEndpoint(Generic[_Options]):
    """Connects to the line as it is listed at that time."""

    def __init__(self, lines: ListedLines[_Options], facts: MachineFacts, claim: Claim) -> None:
        self._lines, self._facts, self._claim = lines, facts, claim

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        opening = self._lines.open(self._facts, self._claim, protocolFactory)
        return Deferred.fromCoroutine(opening)

    def has_come_back(self) -> Deferred[bool]:
        return Deferred.fromCoroutine(self._lines.has_come_back(self._facts))

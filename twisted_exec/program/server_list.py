"""
Lists of servers with BMCs, in CSV or YAML: ``lines_from`` of a machine class, and what ``exec-racks`` writes.

A CSV file, in UTF-8::

    # servers: 2
    name,address,system,labels
    default/web-1,10.0.1.11,System_0,rack=r7;unit=12
    default/web-2,10.0.1.12,,

The same in YAML::

    count: 2
    servers:
    - {name: default/web-1, address: 10.0.1.11, system: System_0, labels: {rack: r7, unit: "12"}}
    - {name: default/web-2, address: 10.0.1.12}

The number of servers, the system and the labels are optional.  With the number, a file that was cut off at the end of a
row is noticed, too.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from twisted_exec.api.names import dns_label, dns_subdomain, label_value, qualified_name
from twisted_exec.api.yaml_reader import PlacedMapping
from twisted_exec.program.config_file import (
    ConfigError,
    Reader,
    parse_document,
    read_text,
)

MAX_SERVERS = 10_000
"""Limit for the servers of a list."""

COLUMNS = ("name", "address", "system", "labels")
_REQUIRED = COLUMNS[:2]

_COUNT = re.compile(r"#\s*servers:\s*(\d{1,6})\s*")
_FORMULA = tuple("=+-@\t\r")
"""First characters of cells that a spreadsheet would compute."""
_MAX_CELL = 4096
_MAX_SYSTEM = 255


class NoServers(ConfigError):
    """A list has no servers; it may have been cut off, or all servers may be gone."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has no servers")


@dataclass(frozen=True)
class Server:
    """
    One row of a list.

    :param name: of the line and its Machine: ``NAME`` or ``NAMESPACE/NAME``.
    :param address: IP address of the BMC, in its shortest form.
    :param system: id of the Redfish system; empty for the only one.
    :param line: in the file, from 1; 0 if unknown.
    """

    name: str
    address: str
    system: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class ServerList:
    """
    The content of a list.

    :param servers: the usable rows, in the order of the file.
    :param refused: for each other row its name, which may be empty, and the error with file and line.
    """

    servers: Sequence[Server]
    refused: Sequence[tuple[str, str]] = ()


def read_servers(path: str) -> ServerList:
    """
    Read a file: CSV if its name ends so, YAML otherwise.

    :raises ConfigError: the whole file cannot be used: it cannot be read, is too large, cut off, has no servers, or is
        not a list of servers.
    """
    return parse_servers(read_text(path), path)


def parse_servers(text: bytes, path: str) -> ServerList:
    """
    Parse a file; see :func:`read_servers`.

    :raises ConfigError: as there.
    """
    is_csv = path.lower().endswith(".csv")
    count, rows = _csv_rows(text, path) if is_csv else _yaml_rows(text, path)
    if not rows:
        raise NoServers(path)
    if count is not None and count != len(rows):
        raise ConfigError(
            f"{path} has {len(rows)} servers, and says that it has {count}; it may be cut off"
        )
    if len(rows) > MAX_SERVERS:
        raise ConfigError(f"{path} has more than {MAX_SERVERS} servers")
    return _checked(rows)


def format_csv(servers: Iterable[Server]) -> bytes:
    """Return a CSV file with these servers, which :func:`parse_servers` reads."""
    rows = list(servers)
    file = io.StringIO()
    file.write(f"# servers: {len(rows)}\n")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in rows:
        labels = ";".join(f"{key}={value}" for key, value in sorted(each.labels.items()))
        writer.writerow((each.name, each.address, each.system, labels))
    return file.getvalue().encode("utf-8")


def name_problem(name: str) -> str:
    """Return why no line can have a name, or an empty text."""
    if name.startswith(_FORMULA):
        return f"name {name!r} begins with {name[0]!r}, as a formula of a spreadsheet"
    namespace, slash, machine = name.rpartition("/")
    if dns_subdomain(machine) or (slash and dns_label(namespace)):
        return (
            f"no Machine can have the name {name!r}; write NAME or NAMESPACE/NAME with lower-case "
            "letters, digits and hyphens"
        )
    return ""


def address_of(text: str) -> str:
    """
    Return an IP address in its shortest form.

    :raises ValueError: it is not one. A host name could be made to lead elsewhere later.
    """
    if "%" in text:
        raise ValueError
    return str(ip_address(text))


def system_problem(system: str) -> str:
    """Return why a text cannot be the id of a Redfish system, or an empty text."""
    if len(system) > _MAX_SYSTEM or not system.isprintable() or "/" in system:
        return f"system {system[:40]!r} is not the id of a system, such as System_0"
    return ""


@dataclass(frozen=True)
class _Row:
    """A row before its check: a document for :class:`Reader`, or an error."""

    document: PlacedMapping
    where: str
    problem: str = ""


# CSV.


def _csv_rows(text: bytes, path: str) -> tuple[int | None, list[_Row]]:
    try:
        content = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: the file is not UTF-8 (line {line})") from None
    if content and not content.endswith("\n"):
        last = content.count("\n") + 1
        raise ConfigError(f"{path}: the last line does not end; it may be cut off (line {last})")
    count, begins = None, 0
    if content.startswith("#"):
        first, _, content = content.partition("\n")
        said = _COUNT.fullmatch(first.rstrip("\r").rstrip(","))  # spreadsheets fill up rows
        if said is None:
            raise ConfigError(f"{path}: the first line can only be '# servers: NUMBER' (line 1)")
        count, begins = int(said[1]), 1
    return count, list(_cells(content, path, begins))


def _cells(content: str, path: str, begins: int) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    head: list[str] | None = None
    line = begins
    try:
        for cells in reader:
            first, line = line + 1, begins + reader.line_num
            if not any(cells):
                continue
            if line != first:
                raise csv.Error("a cell goes on in the next line: a quote is missing")
            if max(map(len, cells)) > _MAX_CELL:
                raise csv.Error(f"a cell has more than {_MAX_CELL} characters")
            if head is None:
                head = _head(cells, path, line)
            else:
                yield _row(head, cells, line, path)
    except csv.Error as error:
        raise ConfigError(f"{path}: {error} (line {begins + reader.line_num})") from None
    if head is None:
        raise NoServers(path)


def _head(cells: list[str], path: str, line: int) -> list[str]:
    head = [cell.strip().lower() for cell in cells]
    while head and not head[-1]:
        head.pop()
    unknown = [each for each in head if each not in COLUMNS]
    lacking = [each for each in _REQUIRED if each not in head]
    if unknown or lacking or len(set(head)) != len(head):
        raise ConfigError(
            f"{path}: the first row must name the columns, separated by commas: name,address and, if "
            f"there are, system,labels, each once (line {line})"
        )
    return head


def _row(head: list[str], cells: list[str], line: int, path: str) -> _Row:
    document = PlacedMapping(line)
    cells = [cell.strip() for cell in cells]
    while len(cells) > len(head) and not cells[-1]:
        cells.pop()
    document.update(
        {key: value for key, value in zip(head, cells, strict=False) if value or key in _REQUIRED}
    )
    problem = f"it has {len(cells)} cells, not {len(head)}" if len(cells) != len(head) else ""
    if "labels" in document:
        try:
            document["labels"] = dict(_pair(each) for each in document["labels"].split(";") if each)
        except ValueError:
            problem = "labels must be of the form KEY=VALUE;KEY=VALUE"
    return _Row(document, path, problem)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.strip().partition("=")
    if not equals:
        raise ValueError
    return key, value


# YAML.


def _yaml_rows(text: bytes, path: str) -> tuple[int | None, list[_Row]]:
    reader = Reader(parse_document(text, path), path)
    count = int(reader.number("count", 0, MAX_SERVERS, -1)) if reader.has("count") else None
    servers = reader.take("servers", list, [])
    reader.done()
    return count, [_yaml_row(each, f"{path}: servers[{at}]") for at, each in enumerate(servers)]


def _yaml_row(entry: object, where: str) -> _Row:
    if isinstance(entry, PlacedMapping):
        return _Row(entry, where)
    return _Row(PlacedMapping(0), where, "it must be a mapping with name and address")


# Both.


def _checked(rows: Sequence[_Row]) -> ServerList:
    servers: list[Server] = []
    refused: list[tuple[str, str]] = []
    names: dict[str, Server] = {}
    addresses: dict[str, Server] = {}
    for row in rows:
        name = row.document.get("name")
        shown = name if isinstance(name, str) else ""
        try:
            reader = Reader(row.document, f"{row.where}: {shown}" if shown else row.where)
            if row.problem:
                raise reader.error(row.problem)
            server = _server(reader, row.document.line)
            _check_twice(reader, server, names, addresses)
        except ConfigError as problem:
            refused.append((shown, str(problem)))
            continue
        names[server.name] = server
        addresses[server.address] = server
        servers.append(server)
    return ServerList(servers, refused)


def _check_twice(
    reader: Reader, server: Server, names: Mapping[str, Server], addresses: Mapping[str, Server]
) -> None:
    if server.name in names:
        raise reader.error(f"line {names[server.name].line} has this name already; rename one")
    if other := addresses.get(server.address):
        raise reader.error(
            f"line {other.line} ({other.name}) has the BMC {server.address} already, and a BMC has one "
            "line; remove one of both rows"
        )


def _server(reader: Reader, line: int) -> Server:
    name = reader.take("name", str)
    if problem := name_problem(name):
        raise reader.error(problem, "name")
    written = reader.take("address", str)
    try:
        address = address_of(written)
    except ValueError:
        raise reader.error(
            f"address {written[:64]!r} is not an IP address, such as 10.0.1.11", "address"
        ) from None
    system = reader.take("system", str, "")
    if problem := system_problem(system):
        raise reader.error(problem, "system")
    labels: Mapping[str, str] = reader.take("labels", dict, {})
    for key, value in labels.items():
        wrong = not isinstance(key, str) or not isinstance(value, str)
        if wrong or qualified_name(key) or label_value(value):
            raise reader.error(f"labels: {key!r}: {value!r} is not a label and its value", "labels")
    reader.done()
    return Server(name, address, system, dict(labels), line)

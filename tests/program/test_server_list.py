"""
Tests for :mod:`twisted_exec.program.server_list`.
"""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program import server_list
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.server_list import (
    MAX_SERVERS,
    Server,
    ServerList,
    format_csv,
    parse_servers,
    read_servers,
)

HEAD = "name,address,system,labels\n"
WEB_1 = Server("default/web-1", "10.0.1.11", "System_0", {"rack": "r7", "unit": "12"})
WEB_2 = Server("default/web-2", "10.0.1.12")


class ListCase(SynchronousTestCase):
    """Lists as text."""

    def csv(self, text: str) -> ServerList:
        return parse_servers(text.encode(), "/x/l.csv")

    def yaml(self, text: str) -> ServerList:
        return parse_servers(text.encode(), "/x/l.yaml")

    def refusal(self, text: str | bytes, path: str = "/x/l.csv") -> str:
        """Return why a whole file is refused."""
        with self.assertRaises(ConfigError) as caught:
            parse_servers(text.encode() if isinstance(text, str) else text, path)
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        return message

    def problem(self, rows: str) -> str:
        """Return why one row is refused, beside others that are not."""
        found = self.csv(f"{HEAD}{rows}zz,10.9.9.9,,\n")
        self.assertEqual(found.servers[-1].name, "zz")
        ((_, problem),) = found.refused
        return problem


class FormTests(ListCase):
    """What can be written."""

    def test_examples(self) -> None:
        """The examples in the documentation of the module are the same list."""
        text = server_list.__doc__ or ""
        parts = [
            "".join(f"{line.strip() if at == 1 else line[4:]}\n" for line in part.splitlines()[2:])
            for at, part in enumerate(text.split("::\n"))
        ]
        csv = parts[1].partition("\n\n")[0] + "\n"
        yaml = parts[2].partition("\n\n")[0] + "\n"
        self.assertEqual(self.csv(csv).servers, [WEB_1, WEB_2])
        self.assertEqual(self.yaml(yaml), self.csv(csv))

    def test_lines(self) -> None:
        """Each server knows its line in the file."""
        csv = self.csv("# servers: 2\n" + HEAD + "\na,10.0.0.1,,\nb,10.0.0.2,,\n")
        self.assertEqual([each.line for each in csv.servers], [4, 5])
        yaml = self.yaml(
            "servers:\n- name: a\n  address: 10.0.0.1\n- {name: b, address: 10.0.0.2}\n"
        )
        self.assertEqual([each.line for each in yaml.servers], [2, 4])

    def test_spreadsheets(self) -> None:
        """Files of spreadsheets are read: byte order mark, CRLF, quotes, empty cells at the end."""
        text = '\ufeff# servers: 1,,\r\nName,Address,\r\n"web-1","10.0.1.11",\r\n,,\r\n'
        self.assertEqual(self.csv(text).servers, [Server("web-1", "10.0.1.11")])

    def test_addresses(self) -> None:
        """IP addresses have one form, so that two rows cannot hide that they name one BMC."""
        self.assertEqual(self.csv(HEAD + "a,FD00::0:1,,\n").servers[0].address, "fd00::1")
        message = self.problem("a,fd00::1,,\nb,FD00:0::1,,\n")
        self.assertIn("line 2 (a) has the BMC fd00::1 already", message)

    @given(
        st.lists(
            st.builds(
                Server,
                st.from_regex(r"[a-z0-9]{1,8}/[a-z0-9]{1,20}", fullmatch=True),
                st.ip_addresses().map(str),
                st.text(
                    st.characters(categories=["L", "N", "P", "S"], exclude_characters="/"),
                    max_size=20,
                ),
            ),
            min_size=1,
            max_size=5,
            unique_by=(lambda each: each.name, lambda each: each.address),
        )
    )
    def test_written(self, servers: list[Server]) -> None:
        """What is written is read as it was."""
        found = parse_servers(format_csv(servers), "/l.csv")
        self.assertEqual((found.servers, found.refused), (servers, []))


class FileTests(ListCase):
    """Files that are refused as a whole."""

    def test_files(self) -> None:
        """Each mistake has a message with the file, and the line if there is one."""
        for text, why in (
            ("", "/x/l.csv has no servers"),
            (HEAD, "/x/l.csv has no servers"),
            ("\n\n", "/x/l.csv has no servers"),
            (HEAD + "web-1,10.0.1.11", "the last line does not end; it may be cut off (line 2)"),
            ("# servers: 2\n" + HEAD + "a,10.0.0.1,,\n", "has 1 servers, and says that it has 2"),
            ("# a comment\n" + HEAD, "the first line can only be '# servers: NUMBER' (line 1)"),
            ("name;address\n", "separated by commas: name,address"),
            ("name,address,power\n", "/x/l.csv: the first row must name the columns"),
            ("name,name,address\n", "each once (line 1)"),
            (HEAD + 'web-1,"10.0.1.11,,\nweb-2,10.0.1.12,,\n', "(line 3)"),
            (HEAD + '"web\n1",10.0.1.11,,\n', "a cell goes on in the next line"),
            (HEAD + 'we"b"-1","x"y,10.0.1.11,\n', "(line 2)"),
            (HEAD + f"{'a' * 5000},10.0.1.11,,\n", "a cell has more than 4096 characters (line 2)"),
            (HEAD.encode() + b"\xff,10.0.1.11,,\n", "the file is not UTF-8 (line 2)"),
        ):
            self.assertIn(why, self.refusal(text), text)

    def test_yaml(self) -> None:
        """The same of YAML."""
        for text, why in (
            ("", "must be a mapping"),
            ("servers: []\n", "has no servers"),
            ("servers: {a: 1}\n", "servers must be a list"),
            ("servers:\n- name: [\n", "/x/l.yaml: "),
            ("count: 2\nservers:\n- {name: a, address: 10.0.0.1}\n", "says that it has 2"),
            ("lines: []\n", "unknown key 'lines'"),
        ):
            self.assertIn(why, self.refusal(text, "/x/l.yaml"), text)

    def test_too_many(self) -> None:
        """The number of servers and the size of the file are bounded."""
        rows = "".join(
            f"m{at},10.{at >> 16}.{at >> 8 & 255}.{at & 255},,\n" for at in range(MAX_SERVERS + 1)
        )
        self.assertIn(f"more than {MAX_SERVERS} servers", self.refusal(HEAD + rows))
        path = self.mktemp()
        with open(path, "wb") as file:
            file.truncate(100 << 20)
        with self.assertRaisesRegex(ConfigError, "larger than 4 MiB"):
            read_servers(path)

    def test_unreadable(self) -> None:
        """A file that is missing, or none, is named."""
        path = os.path.abspath(self.mktemp())
        with self.assertRaisesRegex(ConfigError, f"cannot read {path}: No such file"):
            read_servers(path)
        with self.assertRaisesRegex(ConfigError, "cannot read /dev/zero"):
            read_servers("/dev/zero")


class RowTests(ListCase):
    """Rows that are refused; the others are used."""

    def test_rows(self) -> None:
        """Each mistake has a message with file, name and line."""
        for rows, why in (
            ("web 1,10.0.0.1,,\n", "no Machine can have the name 'web 1'"),
            ("A/web,10.0.0.1,,\n", "write NAME or NAMESPACE/NAME"),
            (",10.0.0.1,,\n", "no Machine can have the name ''"),
            ("web,bmc.lab,,\n", "/x/l.csv: web: address 'bmc.lab' is not an IP address"),
            ("web,10.0.0.1:623,,\n", "is not an IP address, such as 10.0.1.11 (line 2)"),
            ("web,fe80::1%eth0,,\n", "is not an IP address"),
            ("web,,,\n", "is not an IP address"),
            ("web,10.0.0.1,../../x,\n", "is not the id of a system"),
            ("web,10.0.0.1,,rack\n", "labels must be of the form KEY=VALUE;KEY=VALUE (line 2)"),
            ("web,10.0.0.1,,rack=a b\n", "'a b' is not a label and its value"),
            ("web,10.0.0.1\n", "it has 2 cells, not 4 (line 2)"),
            ("web,10.0.0.1,,,,x\n", "it has 6 cells, not 4 (line 2)"),
        ):
            self.assertIn(why, self.problem(rows), rows)

    def test_formulas(self) -> None:
        """A formula of a spreadsheet is no name, and elsewhere text that nobody computes."""
        for sign in "=+-@":
            message = self.problem(f"{sign}cmd|' /C calc'!A0,10.0.0.1,,\n")
            self.assertIn(f"begins with '{sign}', as a formula of a spreadsheet (line 2)", message)
        found = self.csv(HEAD + "web,10.0.0.1,=1+1,\n")
        self.assertEqual(found.servers[0].system, "=1+1")

    def test_twice(self) -> None:
        """Two rows cannot have one name or one BMC, whatever their systems are."""
        self.assertIn("line 2 has this name already", self.problem("a,10.0.0.1,,\na,10.0.0.2,,\n"))
        for second in ("10.0.0.1,S,", "10.0.0.1,T,", "10.0.0.1,,"):
            message = self.problem(f"a,10.0.0.1,S,\nb,{second}\n")
            self.assertIn(
                "line 2 (a) has the BMC 10.0.0.1 already, and a BMC has one line; remove one of both "
                "rows (line 3)",
                message,
            )

    def test_yaml(self) -> None:
        """The same of YAML, with the number of the row."""
        found = self.yaml(
            "servers:\n- web\n- {name: web, address: 1}\n- {name: a, address: 10.0.0.1, port: 80}\n"
            "- {name: b, address: 10.0.0.2, labels: {unit: 12}}\n- {name: ok, address: 10.0.0.3}\n"
        )
        self.assertEqual([each.name for each in found.servers], ["ok"])
        for (name, problem), expected, why in zip(
            found.refused,
            ("", "web", "a", "b"),
            ("it must be a mapping", "address must be a string", "unknown key 'port'", "label"),
            strict=True,
        ):
            self.assertEqual(name, expected)
            self.assertIn(why, problem)
            self.assertIn("/x/l.yaml: servers[", problem)

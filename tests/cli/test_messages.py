"""
Tests for :mod:`twisted_exec.cli.messages`.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import termios
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.test_options import programs
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import (
    BadGateway,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.cli import commands, messages
from twisted_exec.cli.commands.registry import COMMANDS
from twisted_exec.cli.messages import explain, for_stdout, one_line, rows, say
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ExecPlugin,
    KubeConfigError,
    Material,
)


class ExplainTests(SynchronousTestCase):
    """Tests for :func:`explain`."""

    def test_refusals(self) -> None:
        """Errors of an API server are explained in the user's terms."""
        self.assertEqual(explain(NotFound("machines", "vm")), 'machine "vm" not found')
        for plural, group in (
            ("machines", "compute.ironcore.dev"),
            ("instances", "core.spheric.cloud"),
        ):
            self.assertEqual(
                explain(NotFound(plural, "vm", group), "lab"),
                f'{plural[:-1]} "vm" not found in namespace "lab"',
            )
        space = NotFound(SPACES.plural, "lab", SPACES.group, 'there is no space "lab"')
        self.assertEqual(
            explain(space, "x"), 'there is no space "lab"; kubectl get spaces -A lists all spaces'
        )
        pool = NotFound("machinepools", "p", "compute.ironcore.dev")
        self.assertEqual(explain(pool, "lab"), 'machinepool "p" not found')
        lost = NotFound("pools", "p", "x.y", 'pools.x.y "p" not found: machine vm was in it')
        self.assertEqual(explain(lost), 'pool "p" not found: machine vm was in it')
        self.assertEqual(explain(Forbidden("user ann may not")), "forbidden: user ann may not")
        missing = 'secrets "a" is forbidden: user "ann" cannot get secrets'
        self.assertEqual(explain(Forbidden(missing)), missing)
        self.assertEqual(
            explain(Unauthorized()),
            "the server does not accept these credentials: Unauthorized; get new credentials, or check "
            "--context and --user",
        )
        self.assertEqual(
            explain(TooManyRequests("runtime full", 3)), "runtime full; try again in 3 s"
        )
        self.assertEqual(explain(BadGateway("poollet down")), "poollet down")

    def test_unknown_credentials(self) -> None:
        """The message for a 401 names the server, the credentials and where they are from."""
        config = ClientConfig("https://api", credentials_source='user "ann" in f (context "c")')
        remedy = "; get new credentials, or check --context and --user"
        refusal = Unauthorized('machine "vm": Unauthorized (the token ended on 2020-01-01)')
        source = 'of user "ann" in f (context "c")'
        self.assertEqual(
            explain(refusal, config=replace(config, token="t")),
            f"https://api does not accept the bearer token {source}: Unauthorized (the token ended on "
            f"2020-01-01){remedy}",
        )
        plugin = ExecPlugin("login", "v1")
        for kind, own in (
            ("bearer token", replace(config, token_file="/run/token")),
            ("user name and password", replace(config, username="ann", password="x")),
            ("client certificate", replace(config, certificate=Material(path="/ann.crt"))),
            ("credential of the plugin login", replace(config, plugin=plugin)),
        ):
            told = f"https://api does not accept the {kind} {source}: Unauthorized{remedy}"
            self.assertEqual(explain(Unauthorized(), config=own), told)
        self.assertEqual(
            explain(Unauthorized(), config=config),
            f'https://api needs credentials, and user "ann" in f (context "c") has none: Unauthorized{remedy}',
        )
        own_users = Unauthorized('machine "vm": Unauthorized; the API server has users of its own')
        self.assertTrue(explain(own_users, config=config).endswith("has users of its own"))

    def test_out_of_reach(self) -> None:
        """The message for a server that cannot be reached ends with the next step."""
        config = ClientConfig("https://api")
        unreachable = Obstacle.SERVER_UNREACHABLE
        for obstacle, remedy in (
            (
                Obstacle.CONNECTION_REFUSED,
                "start that API server, or choose another cluster with --context",
            ),
            (
                Obstacle.NAME_UNKNOWN,
                "correct the server in the kubeconfig, or this host's DNS settings",
            ),
            (Obstacle.CONNECT_TIMEOUT, "twisted-exec doctor checks each step to it"),
            (None, "twisted-exec doctor checks each step to it"),
        ):
            told = "cannot reach the API server https://api: why"
            error = because(unreachable, because(obstacle, BadGateway(told)))
            self.assertEqual(explain(error, config=config), f"{told}; {remedy}")
        elsewhere = "cannot reach https://other: connection refused"
        error = because(unreachable, BadGateway(elsewhere))
        self.assertEqual(explain(error, config=config), elsewhere)

    def test_namespace(self) -> None:
        """A user without rights in a namespace may have mistyped it: nobody else tells them."""
        words = 'User "ann" cannot drive resource "machines/console" in API group '
        words += '"compute.ironcore.dev" in the namespace "kube-sytem"'
        refusal = Forbidden(f"x is forbidden: {words}")
        self.assertIn(
            f'{words}; is the namespace "kube-sytem" right? If so, ask an administrator for the role '
            "console-user (console-observer suffices for --read-only): kubectl create rolebinding ",
            explain(refusal, "kube-sytem"),
        )
        self.assertNotIn("right?", explain(refusal))
        requests = (
            'x is forbidden: User "ann" cannot create resource "consolerequests" in API group '
        )
        requests += (
            '"console.twisted-exec.dev" in the namespace "lab"'  # after rights at the machine
        )
        self.assertNotIn("right?", explain(Forbidden(requests), "lab"))
        takeover = Forbidden(str(refusal.message).replace("drive", "takeover"))  # has rights there
        self.assertNotIn("right?", explain(takeover, "kube-sytem"))

    def test_missing_right(self) -> None:
        """The message for a 403 names the smallest role to ask for, and the command that grants it."""
        compute, own = "compute.ironcore.dev", "console.twisted-exec.dev"

        def told(
            verb: str, resource: str, where: str = ' in the namespace "lab"', group: str = ""
        ) -> str:
            group = group or (compute if resource.startswith("machine") else own)
            words = (
                f'User "ann@x" cannot {verb} resource "{resource}" in API group "{group}"{where}'
            )
            line = explain(Forbidden(f"x is forbidden: {words}"))
            self.assertIn(f"{words}; ", line)
            return line.partition("ask an administrator for ")[2]

        for verb, resource, role in (
            ("observe", "machines/console", "console-observer"),
            ("get", "machines/console", "console-observer"),  # a host's words for the same
            ("get", "machines/log", "console-log-reader"),
            ("list", "machines", "view"),
            ("patch", "machines", "edit"),
            ("takeover", "machines/console", "console-operator"),
            ("list", "consolesessions", "console-session-reader"),
            ("delete", "consolesessions", "admin"),
            ("list", "consolerecordings", "console-session-reader"),
            ("get", "consolerecordings/content", "console-recording-reader"),
            ("get", "deletedconsoles/log", "admin"),
            ("list", "consolerequests", "console-session-reader"),
            ("patch", "consolerequests/approval", "console-approver"),
            ("create", "consolerequests", "console-observer"),
            ("get", "consolerequests", "console-session-reader"),
            ("create", "consolepolicies", "console-policy-editor"),
            ("list", "consolealerts", "view"),
        ):
            self.assertEqual(
                told(verb, resource),
                f"the role {role}: kubectl create rolebinding ann-x-{role} --clusterrole={role} "
                "--user=ann@x -n lab",
            )
        for verb, resource in (
            ("create", "machines/exec"),
            ("get", "machines/exec"),  # a host's words for a WebSocket
            ("drive", "machines/console"),
        ):
            self.assertEqual(
                told(verb, resource),
                "the role console-user (console-observer suffices for --read-only): kubectl create "
                "rolebinding ann-x-console-user --clusterrole=console-user --user=ann@x -n lab",
            )
        self.assertEqual(
            told("list", "machines", ""),
            "the role view: kubectl create clusterrolebinding ann-x-view --clusterrole=view --user=ann@x",
        )
        self.assertEqual(told("delete", "widgets", group="x"), "a role with delete on widgets")

    def test_servers_remedy(self) -> None:
        """The command takes the place of the server's own remedy."""
        words = 'x is forbidden: User "ann" cannot get resource "machines/log" in API group '
        words += '"compute.ironcore.dev" in the namespace "lab"'
        remedy = 'ask an administrator for the role console-log-reader in the namespace "lab"'
        line = explain(Forbidden(f"{words}: {remedy}"))
        self.assertEqual(line, explain(Forbidden(words)))
        self.assertTrue(line.endswith("--user=ann -n lab"), line)

    def test_right_to_observe(self) -> None:
        """A 403 that names a smaller request gets no other remedy, unless the user wants to take over."""
        words = 'is forbidden: User "ann" cannot create resource "machines/exec" in API group "g" in the '
        words += 'namespace "lab": you may observe it: open it with --read-only'
        self.assertEqual(explain(Forbidden(words)), words)
        words = 'is forbidden: User "ann" cannot takeover resource "machines/console" in API group '
        words += '"compute.ironcore.dev" in the namespace "lab": you may drive it: open it without --force'
        self.assertEqual(
            explain(Forbidden(words)),
            f"{words}; to take over, ask an administrator for the role console-operator: kubectl create "
            "rolebinding ann-console-operator --clusterrole=console-operator --user=ann -n lab",
        )

    def test_others(self) -> None:
        """A kubeconfig error is shown as it is; an unexpected exception is an internal error."""
        self.assertEqual(explain(KubeConfigError("f: not YAML")), "f: not YAML")
        self.assertEqual(explain(ValueError("x")), "internal error: ValueError: x")


class OneLineTests(SynchronousTestCase):
    """Tests for :func:`one_line`."""

    def test_safe_for_a_terminal(self) -> None:
        """A server cannot move the cursor or add lines."""
        self.assertEqual(one_line("größe\r\n\x1b[2J ok\x07"), "größe ?[2J ok?")


class RowsTests(SynchronousTestCase):
    """Tests for :func:`rows`."""

    def test_commands(self) -> None:
        """A command that a user may copy is never broken, wherever it is."""
        use = "  kubectl console --reason TICKET -n lab vm"
        for line, shown in (
            (f"it needs a reason: use {use[2:]}", ["it needs a reason: use", use]),
            (f"it needs one: request it with {use[2:]}", ["it needs one: request it with", use]),
            (use, [use]),
            (
                f"wait: or with {use[2:]}, or twisted-exec request approve -n lab x; then go on",
                [
                    "wait: or with",
                    use,
                    "  or",
                    "  twisted-exec request approve -n lab x",
                    "  then go on",
                ],
            ),
            (
                "ask: kubectl patch a --user='b; c, d'",
                ["ask:", "  kubectl patch a --user='b; c, d'"],
            ),
            (
                f'ConsolePolicy "a" is closed; ConsolePolicy "b" needs it: use {use[2:]}; ConsolePolicy "c" is not',
                [
                    'ConsolePolicy "a" is closed',
                    'ConsolePolicy "b" needs it:',
                    "  use",
                    use,
                    'ConsolePolicy "c" is not',
                ],
            ),
        ):
            self.assertEqual(rows(line, 30), shown)


class SayTests(SynchronousTestCase):
    """Messages on standard error."""

    def test_safe(self) -> None:
        """A message is one line without control characters, whatever a server has sent."""
        printed = io.StringIO()
        with redirect_stderr(printed):
            say("space lab-1: \x1b]0;title\x07a\r\nb | c\x9b2J\u202e")
        self.assertEqual(printed.getvalue(), "space lab-1: ?]0;title?a b | c?2J?\n")

    def test_terminal(self) -> None:
        """A terminal gets it broken at blanks, as wide as it is; a command of kubectl stays whole."""
        user, terminal = os.openpty()
        self.addCleanup(os.close, user)
        termios.tcsetwinsize(terminal, (24, 20))
        with open(terminal, "w") as stream, redirect_stderr(stream):
            say("one two three four five six")
            say("ask somebody for it: kubectl create something --for=you")
            say("ask with kubectl console --reason TICKET vm, or kubectl exec -it vm; or wait")
            print("end", file=sys.stderr)
        with open(user, closefd=False) as shown:
            rows = list(iter(lambda: shown.readline().rstrip(), "end"))
        self.assertEqual(rows[:2], ["one two three four", "  five six"])
        self.assertEqual(
            rows[2:4], ["ask somebody for it:", "  kubectl create something --for=you"]
        )
        commands = ["  kubectl console --reason TICKET vm", "  or", "  kubectl exec -it vm"]
        self.assertEqual(rows[4:], ["ask with", *commands, "  or wait"])

    def test_output(self) -> None:
        """A sentence on standard output is broken for a terminal, and whole for other programs."""
        user, terminal = os.openpty()
        self.addCleanup(os.close, user)
        termios.tcsetwinsize(terminal, (24, 20))
        with open(terminal, "w") as stream, redirect_stdout(stream):
            self.assertEqual(
                for_stdout("one two three four five\x1b"), "one two three four\n  five?"
            )
        with redirect_stdout(io.StringIO()):
            self.assertEqual(for_stdout("one two three four five"), "one two three four five")


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_OTHER_PROGRAM = re.compile(r"kubectl|poollet|API server|runtime|exec-|twisted-exec \w")


def _texts(module: Path) -> Iterator[str]:
    """Yield the texts of a module that have several words, without docstrings."""
    tree = ast.parse(module.read_text())
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            parts.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            texts = (each.value for each in node.values if isinstance(each, ast.Constant))
            yield " ".join(map(str, texts))
        elif isinstance(node, ast.Constant) and node not in parts and " " in str(node.value):
            yield str(node.value)


class OptionsTests(SynchronousTestCase):
    """Messages of a command name options that it has."""

    def absent(self, module: Path, options: set[str]) -> list[str]:
        """Return the options that texts of a module name, but no program has that the text is about."""
        return [
            option
            for text in _texts(module)
            if not _OTHER_PROGRAM.search(text)
            for option in _OPTION.findall(text)
            if option not in options | {"--help"}
        ]

    def test_own(self) -> None:
        """An option that a module of a command names belongs to it, or the text names the program."""
        package = Path(commands.__file__).parent
        for command in COMMANDS:
            prefix = f"twisted-exec {command}"
            options = {
                option
                for name, its_options in programs().items()
                if name == prefix or name.startswith(f"{prefix} ")
                for option in its_options
            }
            self.assertEqual(self.absent(package / f"{command}.py", options), [], command)
        console = set(programs()["kubectl console"])
        for module in (package.parent / "console").glob("*.py"):
            self.assertEqual(self.absent(module, console), [], module.name)

    def test_shared(self) -> None:
        """Options in remedies for a cluster exist in all commands that have a kubeconfig and a context."""
        shared = Path(messages.__file__)
        for name, options in programs().items():
            is_command = name.startswith(("kubectl ", "twisted-exec "))
            if is_command and {"--kubeconfig", "--context"} <= set(options):
                self.assertEqual(self.absent(shared, {"--read-only", *options}), [], name)

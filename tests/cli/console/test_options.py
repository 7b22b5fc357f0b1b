"""
Tests for :mod:`twisted_exec.cli.console.options`.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DIALECTS
from twisted_exec.cli.console.options import make_parser, parse_options, unescaped


class ParseOptionsTests(SynchronousTestCase):
    """Tests for :func:`parse_options`."""

    def test_defaults(self) -> None:
        """The name alone is enough; all options have defaults."""
        options = parse_options(["vm"])
        self.assertEqual(options.name, "vm")
        self.assertEqual(str(options.escape), "Ctrl-] leaves, ~? helps")
        for unset in (options.namespace, options.kubeconfig, options.context):
            self.assertIsNone(unset)
        self.assertIsNone(options.linger)
        self.assertIsNone(options.timeout)
        self.assertEqual((options.no_resume, options.lost_after), (False, 20))

    def test_lost(self) -> None:
        """The silence that counts as a loss is a time of 5 s or more."""
        options = parse_options(["vm", "--no-resume", "--lost-after", "1m"])
        self.assertEqual((options.no_resume, options.lost_after), (True, 60))
        self.assertEqual(parse_options(["vm", "--lost-after=5"]).lost_after, 5)

    def test_web(self) -> None:
        """``--web`` goes with a machine and credentials, and with nothing that the page asks for."""
        options = parse_options(["vm", "--web", "-n", "lab", "--context", "c", "--as", "ann"])
        self.assertTrue(options.web)
        for words in (
            ["--record"],
            ["--reason", "x"],
            ["--escape", "^B"],
            ["--read-only"],
            ["--force"],
            ["--timeout", "5"],
            ["--send", "x"],
            ["--run", "x"],
            ["--space", "s"],
            ["--raw"],
        ):
            stderr = io.StringIO()
            with redirect_stderr(stderr), self.assertRaises(SystemExit):
                parse_options(["vm", "--web", *words])
            self.assertIn("does not go with --web", stderr.getvalue(), words)

    def test_kind(self) -> None:
        """A name may have the form of ``kubectl get -o name``; any other path is refused."""
        for text in ("machine/vm", "machines/vm", "machine.compute.ironcore.dev/vm"):
            self.assertEqual(parse_options([text]).name, "vm")
        self.assertEqual(parse_options(["machine"]).name, "machine")
        for text in ("instances/vm", "pod/vm", "Machine/vm"):
            self.assertEqual(parse_options([text]).name, "vm")
        no_kind = 'no kind "node"; there are pod, machine, instance; if "node" is a namespace: -n node vm; '
        for text, why in (
            ("node/vm", no_kind),
            ("a%/vm", 'no kind "a%"; there are pod, machine, instance; see'),
            ("lab/", '"lab/" is no name; if "lab" is a namespace: -n lab NAME; see'),
            ("a\\b", '"a\\b" is no name: may not contain'),
            *((each, "is no name") for each in ("machine/", "machine/a/b", "machine/..", "/vm")),
        ):
            stderr = io.StringIO()
            with redirect_stderr(stderr), self.assertRaises(SystemExit):
                parse_options([text])
            self.assertIn(why, stderr.getvalue())

    def test_among(self) -> None:
        """The kind narrows the possible dialects, and ``--dialect`` selects one."""
        for arguments, names in (
            (["vm"], [each.name for each in DIALECTS]),
            (["pod/vm"], [each.name for each in DIALECTS]),
            (["machine/vm"], ["ironcore", "onmetal", "spheric-machines"]),
            (["machines.compute.api.onmetal.de/vm"], ["onmetal"]),
            (["machines.v1alpha1.core.spheric.cloud/vm"], ["spheric-machines"]),
            (["instance/vm"], ["spheric"]),
            (["vm", "--dialect", "onmetal"], ["onmetal"]),
            (["machine/vm", "--dialect=spheric-machines"], ["spheric-machines"]),
        ):
            among = parse_options(arguments).among
            self.assertEqual([each.name for each in among], names, arguments)
        stderr = io.StringIO()
        with redirect_stderr(stderr), self.assertRaises(SystemExit) as caught:
            parse_options(["instance/vm", "--dialect=ironcore"])
        self.assertEqual(caught.exception.code, 1)
        self.assertIn("dialect ironcore has no instance", stderr.getvalue())

    def test_all(self) -> None:
        """Options may come before and after the name."""
        options = parse_options(
            [
                "-n",
                "space",
                "--kubeconfig",
                "f",
                "vm",
                "--context",
                "c",
                "--escape",
                "none",
                "--linger",
                "2",
                "--timeout",
                "0.5",
            ]
        )
        self.assertEqual((options.name, options.namespace), ("vm", "space"))
        self.assertEqual((options.kubeconfig, options.context), ("f", "c"))
        self.assertIsNone(options.escape)
        self.assertEqual((options.linger, options.timeout), (2, 0.5))

    def test_times(self) -> None:
        """Times are written as for kubectl, or as seconds; a time limit of 0 is none."""
        for text, seconds in (("5s", 5), ("1m30s", 90), ("0.5", 0.5), ("500ms", 0.5), ("0", 0)):
            options = parse_options(["vm", "--linger", text, "--timeout", text])
            self.assertEqual((options.linger, options.timeout), (seconds, seconds), text)

    def test_mistakes(self) -> None:
        """A mistake on the command line is one line that names it, and exit code 1."""
        for arguments, word in (
            ([], "with -l or --all; see kubectl console --help\n"),
            (["vm", "--linger", "soon"], '"soon" is no duration such as 30, 5s or 1m30s'),
            (["vm", "--from", "later"], '--from: invalid choice: "later" (choose from'),
            (["vm", "--all=x"], '--all: ignored explicit argument "x"'),
            (["vm", "--linger", "-1"], '"-1"'),
            (["vm", "--lost-after", "4.9"], '"4.9" is too short'),
            (["vm", "--lost-after", "0"], "the least is 5s"),
            (["vm", "--lost-after", "soon"], '"soon" is no duration'),
            (["vm", "--timeout", "inf"], '"inf"'),
            (["vm", "--timeout", "nan"], '"nan"'),
            (["vm", "--escape", "x"], '"x"'),
            (["vm", "--name-space", "x"], "--name-space x; did you mean --namespace? See"),
            (["vm", "--form", "start"], "--form start; did you mean --from? See"),
            (["vm", "--observe"], "--observe; did you mean --read-only? See"),
            (["vm", "--readonly"], "--readonly; did you mean --read-only? See"),
            (["vm", "--quux"], "--quux; see"),
            (["vm", "-it"], "unrecognized arguments: -it; a console needs no -it; see"),
            (["-ti", "vm"], "unrecognized arguments: -ti; a console needs no -ti; see"),
            (["vm", "--stdin", "--tty"], "a console needs no --stdin --tty; see"),
            (["vm", "-it", "--", "sh"], "to run a command: --run sh;"),
            (["vm", "vm-2"], "give one NAME or KIND/NAME"),
            (["machine", "vm"], "unrecognized arguments: vm; did you mean machine/vm? See"),
            (["pod", "vm"], "did you mean pod/vm? See"),
            (["machine", "vm", "uptime"], "to run a command: --run 'vm uptime';"),
            (["vm", "uptime"], "to run a command: --run uptime;"),
            (["vm", "--", "grep", "it's", "-v"], """--run 'grep it'"'"'s -v';"""),
            (["vm", "other"], "see kubectl console --help\n"),
            (
                ["vm", "--run", "id", "x"],
                "the NAME is \"vm\"; quote a command of several words: --run 'id x';",
            ),
            (["vm", "--run", "uname", "-a"], "quote a command of several words: --run 'uname -a';"),
            (["machine", "--run", "id", "vm"], "did you mean machine/vm? See"),
            (["vm", "--send", "a", "b"], "quote a text of several words, as in --send 'a b\\r';"),
            (["vm", "--run", " "], "--run has no command: give one, such as"),
            (["vm", "--run", "a", "--run", "b"], "--run: it is given twice: join the commands"),
            (["vm", "--run", "a", "--send", "b"], "--run goes without --expect and --send: give"),
            (["vm", "--raw", "--from", "now"], "--raw is the same as --from start: give one of"),
            (["instances/vm", "--dialect", "ironcore"], "leave out --dialect, or the kind"),
        ):
            stderr = io.StringIO()
            with redirect_stderr(stderr), self.assertRaises(SystemExit) as caught:
                parse_options(arguments)
            self.assertEqual(caught.exception.code, 1)
            self.assertEqual(len(stderr.getvalue().splitlines()), 1)
            self.assertIn(word, stderr.getvalue())

    def test_reason(self) -> None:
        """A reason has no control characters, and a request needs the cluster's own kubeconfig."""
        self.assertEqual(parse_options(["vm", "--reason", " OPS-1 "]).reason, "OPS-1")
        for words in (["--reason", "a\x1b[2J"], ["--request", "--space", "s"]):
            with self.assertRaises(SystemExit):
                parse_options(["vm", *words])

    def test_help(self) -> None:
        """Help is a success: a usage of one line and the ten most used options, 80 columns wide."""
        lines = self._printed("--help").splitlines()
        self.assertEqual(lines[0], "usage: kubectl console [options] NAME")
        options = [line for line in lines if line.startswith("  -")]
        self.assertEqual(len(options), 10)
        self.assertIn("-n, --namespace NAMESPACE", options[0])
        self.assertIn("--help-all", options[-1])
        self.assertEqual([line for line in lines if len(line) > 80], [])
        self.assertEqual(self._printed("-h").splitlines(), lines)

    def test_all_help(self) -> None:
        """The other help has every option, and the exit codes, 80 columns wide."""
        text = self._printed("--help-all")
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        for action in make_parser().arguments:
            for name in action.option_strings:
                self.assertIn(name, text)
        self.assertIn("Exit code:", text)

    def _printed(self, option: str) -> str:
        stdout = io.StringIO()
        with redirect_stdout(stdout), self.assertRaises(SystemExit) as caught:
            parse_options([option])
        self.assertEqual(caught.exception.code, 0)
        return stdout.getvalue()


class EscapeTests(SynchronousTestCase):
    """The text of ``--send``."""

    def test_escapes(self) -> None:
        """Escapes stand for characters; others are refused."""
        self.assertEqual(
            unescaped(r"a\r\n\t\e\\\x03\u00e9"[:-6] + "\u00e9"), b"a\r\n\t\x1b\\\x03\xc3\xa9"
        )
        for text in (r"\q", "end\\", r"\x1"):
            self.assertIn("is no escape", str(self.assertRaises(ValueError, unescaped, text)))

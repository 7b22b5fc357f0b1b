"""Options that commands share: the API server, the credentials, and the Space."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER

if TYPE_CHECKING:
    from twisted_exec.kube.kubeconfig.client_config import ClientConfig
    from twisted_exec.kube.kubeconfig.loader import Overrides


_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d+)?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LONGEST_SECONDS = 366 * 86400

_DAYS = re.compile(r"(\d{1,5})d", re.ASCII)

_TEXTS = (
    ("--context", "C", "a context of the kubeconfig, instead of the current one"),
    ("--cluster", "NAME", "a cluster of the kubeconfig, instead of the context's"),
    ("--user", "NAME", "a user of the kubeconfig, instead of the context's"),
    ("--certificate-authority", "F", "the CA of the API server (PEM)"),
    ("--tls-server-name", "NAME", "the name that the API server's certificate must have"),
    ("--client-certificate", "F", "your client certificate (PEM)"),
    ("--client-key", "F", "the private key of that certificate"),
    ("--token", "TOKEN", "a bearer token"),
    ("--username", "NAME", "the user name for basic authentication"),
    ("--password", "PASSWORD", "the password for basic authentication"),
    ("--as-uid", "UID", "the UID of the user to impersonate"),
)

_WITH_SPACE = {
    "provider": "--provider",
    "space_credentials": "--space-credentials",
    "send_token_to": "--send-token-to",
    "in_cluster": "--in-cluster",
}


class CheckedParser(argparse.ArgumentParser):
    """
    Fails if its help cannot be written, which newer versions of Python ignore, and publishes its
    arguments.

    :ivar arguments: in the order of their definition, with the titles of their groups.
    :ivar repeatable: arguments that may be given several times.
    :ivar commands: the argument that selects a command, if there are commands.
    :ivar summary: what the list of commands says about this one.
    :cvar other_names: names that users try, and the options that exist, without hyphens.
    """

    commands: Any = None
    summary = ""
    other_names: Mapping[str, str] = {}

    def __init__(self, *words: Any, **options: Any) -> None:
        self.arguments: dict[argparse.Action, str] = {}
        self.repeatable: set[argparse.Action] = set()
        super().__init__(*words, **options)

    def add_argument(self, *words: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*words, **options)
        return self._published("", action, options)

    def add_argument_group(self, *words: Any, **options: Any) -> Any:
        group = super().add_argument_group(*words, **options)
        return self._publishing(str(group.title), group)

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        return self._publishing("", super().add_mutually_exclusive_group(**options))

    def add_subparsers(self, **options: Any) -> Any:
        commands = self.commands = super().add_subparsers(**options)
        add_parser = commands.add_parser

        def add_command(name: str, **options: Any) -> CheckedParser:
            command: CheckedParser = add_parser(name, **options)
            command.summary = options.get("help") or ""
            return command

        commands.add_parser = add_command  # type: ignore[method-assign]
        self.arguments[commands] = ""
        return commands

    def _publishing(self, title: str, group: Any) -> Any:
        add_argument = group.add_argument

        def add_published(*words: Any, **options: Any) -> argparse.Action:
            return self._published(title, add_argument(*words, **options), options)

        group.add_argument = add_published
        return group

    def _published(
        self, title: str, action: argparse.Action, options: Mapping[str, Any]
    ) -> argparse.Action:
        self.arguments[action] = title
        if options.get("action") in ("append", "extend"):
            self.repeatable.add(action)
        return action

    def print_help(self, file: Any = None) -> None:
        stream = file or sys.stdout
        stream.write(self.format_help())
        stream.flush()

    def error_line(self, message: str) -> str:
        """Return the line of an error, with the option that the user may have meant, if it is about an unknown option."""
        if re.search(": (invalid choice:|ignored explicit argument) ", message):  # argparse's own
            message = message.replace("'", '"')
        unknown = re.match("unrecognized arguments: --([a-z-]+)", message)
        near = ""
        if unknown:
            near = self.other_names.get(unknown[1]) or nearest(
                unknown[1], re.findall("--([a-z-]+)", self.format_help()), 0.75
            )
        message = f"{message}; did you mean --{near}?" if near else message
        return f"{self.prog}: {message}{' See' if message.endswith('?') else '; see'} {self.prog} --help"


class VersionAction(argparse.Action):
    """Prints a version, and fails if it cannot be written."""

    def __init__(self, option_strings: Sequence[str], dest: str, version: str) -> None:
        self._version = version
        super().__init__(
            option_strings,
            argparse.SUPPRESS,
            nargs=0,
            default=argparse.SUPPRESS,
            help="show program's version number and exit",
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        sys.stdout.write(f"{parser.prog} {self._version}\n")
        sys.stdout.flush()
        parser.exit()


def nearest(word: str, names: list[str], likeness: float = 0.6) -> str:
    """Return the name that is most like a word; empty if none is."""
    import difflib  # only after a mistake

    return next(iter(difflib.get_close_matches(word, names, 1, likeness)), "")


def add_cluster_options(parser: argparse.ArgumentParser, limit: str = "30s") -> None:
    """
    Add the options to a command's parser.

    :param limit: of requests, by default; for the help.
    """
    group = parser.add_argument_group("API server, as kubectl's options of these names")
    group.add_argument("--kubeconfig", metavar="F", help="the kubeconfig, instead of $KUBECONFIG")
    for name, metavar, text in _TEXTS:
        group.add_argument(name, metavar=metavar, help=text)
    group.add_argument("-s", "--server", metavar="URL", help="the URL of the API server")
    group.add_argument(
        "--insecure-skip-tls-verify",
        action="store_true",
        help="do not verify the API server's certificate: any server is accepted",
    )
    group.add_argument(
        "--as", dest="impersonate", metavar="USER", help="a user to impersonate, with permission"
    )
    group.add_argument(
        "--as-group",
        metavar="GROUP",
        action="append",
        help="a group to impersonate; may be repeated",
    )
    group.add_argument(
        "--request-timeout",
        metavar="TIME",
        type=duration,
        help="the time limit to connect, and again for the answer, such as 5s or 1m; 0 means "
        f"{limit}",
    )


def duration(text: str) -> float | None:
    """
    Return seconds for ``1m30s``, ``500ms``, ``7`` or ``0.5``; ``None`` for 0.

    :raises argparse.ArgumentTypeError: it is no duration up to a year.
    """
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _DURATION.fullmatch(text):
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
    else:
        raise argparse.ArgumentTypeError(f'"{text}" is no duration such as 30, 5s or 1m30s')
    if seconds > _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f'"{text}" is longer than a year')
    return seconds or None


def since_time(text: str) -> int:
    """
    Return nanoseconds since the epoch for a time, or for a duration before now.

    A time without a zone is one of this host, and a date is its midnight, as for journalctl.

    :raises argparse.ArgumentTypeError: it is neither.
    """
    from datetime import datetime  # not needed by consoles

    from twisted_exec.api.times import NANOSECONDS, nanoseconds

    if text[:4].isdigit() and text[4:5] == "-":
        for read in (
            nanoseconds,
            lambda each: int(datetime.fromisoformat(each).timestamp()) * NANOSECONDS,
        ):
            try:
                return read(text)
            except (OverflowError, ValueError):
                continue
        message = f'"{text}" is not a time such as 2026-11-20T08:00:00Z, or 2026-11-20 08:00 here'
        raise argparse.ArgumentTypeError(message)
    if not text[:1].isdigit():
        message = f'"{text}" is no time such as 2026-11-20T08:00:00Z, and no duration such as 10m'
        raise argparse.ArgumentTypeError(message)
    days = _DAYS.match(text)
    rest = text[days.end() :] if days else text
    seconds = (duration(rest) or 0) if rest or not days else 0
    seconds += int(days[1]) * 86400 if days else 0
    return time.time_ns() - int(seconds * NANOSECONDS)


def config_of(options: argparse.Namespace) -> ClientConfig:
    """
    Return the configuration that the options select.

    :raises KubeConfigError: it cannot be used.
    """
    from twisted_exec.kube.kubeconfig.loader import load

    return load(options.kubeconfig, options.context, overrides=overrides_of(options))


def overrides_of(options: argparse.Namespace) -> Overrides:
    """Return the values that override the kubeconfig."""
    from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser
    from twisted_exec.kube.kubeconfig.loader import Overrides

    return Overrides(
        cluster=options.cluster,
        user=options.user,
        namespace=options.namespace,
        server=options.server,
        certificate_authority=options.certificate_authority,
        insecure_skip_tls_verify=options.insecure_skip_tls_verify,
        tls_server_name=options.tls_server_name,
        client_certificate=options.client_certificate,
        client_key=options.client_key,
        token=options.token,
        username=options.username,
        password=options.password,
        impersonate=ImpersonatedUser(
            options.impersonate or "", options.as_uid or "", tuple(options.as_group or ())
        ),
    )


def add_space_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command's parser."""
    group = parser.add_argument_group("Spaces of the API server")
    group.add_argument(
        "--space",
        metavar="NAME",
        default="",
        help="the Space with the machine; the console is opened at the Space's API server",
    )
    add_provider(group)
    add_viewpoint(group)
    group.add_argument(
        "--space-credentials",
        action="store_true",
        help="log in as the Space's own user, with the credentials of its Secret, instead of as "
        "yourself; audit records at the Space name that user",
    )
    group.add_argument(
        "--send-token-to",
        metavar="URL",
        type=_server,
        help="the URL of a Space's server that may receive your token or password; without this "
        "option the server of a Space receives only a client certificate",
    )


def _server(text: str) -> str:
    from twisted_exec.kube.kubeconfig.loader import check_server

    check_server(text, argparse.ArgumentTypeError)
    if not text.startswith("https://"):
        raise argparse.ArgumentTypeError(f'"{text}" is no https:// URL')
    return text


def add_provider(parser: argparse._ActionsContainer) -> None:
    """Add the option for the Space's provider."""
    parser.add_argument(
        "--provider",
        metavar="P",
        default="",
        help="the provider of the Space: a SpaceProviderDesc, or the namespace of an imported one "
        "(default: the provider called default if it has the Space, else the only one that has it)",
    )


def add_viewpoint(parser: argparse._ActionsContainer) -> None:
    """Add the option for the viewpoint."""
    parser.add_argument(
        "--in-cluster",
        action="store_true",
        help="use the Space's address for clients inside the cluster, instead of the external one",
    )


def requires_space(options: argparse.Namespace) -> str:
    """Return an option that was given but needs ``--space``, or empty."""
    given_options = [option for key, option in _WITH_SPACE.items() if getattr(options, key)]
    return given_options[0] if given_options else ""


def viewpoint_of(options: argparse.Namespace) -> str:
    """Return the selected viewpoint."""
    return IN_CLUSTER if options.in_cluster else EXTERNAL

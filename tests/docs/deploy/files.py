"""
Command lines in ``docs/deploy``, parsed by the programs themselves.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from twisted.python import usage

from tests.docs import pages
from tests.docs.test_options import TAPS

DEPLOY = pages.DOCS / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMD = DEPLOY / "systemd"

TWISTD = ["twistd", "-n", "--pidfile="]
"""Arguments that run a program in the foreground."""


def options_of(words: Sequence[str]) -> usage.Options:
    """
    Parse a command line with the program's own options.

    :param words: the program's name and its arguments.
    :raises SystemExit: the program would refuse them.
    """
    options = TAPS[words[0]]()
    options.parseOptions(list(words[1:]))
    return options


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def pods(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the pod specs of the workloads in a file."""
    for each in documents(path):
        if each["kind"] in ("Deployment", "DaemonSet"):
            yield each["spec"]["template"]["spec"]


def command_of(container: dict[str, Any]) -> list[str]:
    """Return a container's command line with its variables replaced, as the kubelet does."""
    variables = {each["name"]: "10.0.0.7" for each in container.get("env", [])}
    return [
        re.sub(r"\$\((\w+)\)", lambda name: variables[name[1]], word) for word in container["args"]
    ]


class Unit:
    """
    A systemd unit.

    :ivar settings: the values of each key, with continued lines joined.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        self.settings: dict[str, list[str]] = {}
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self.settings.setdefault(key, []).append(value)

    def one(self, key: str) -> str:
        """Return the value of a key that occurs once."""
        (value,) = self.settings[key]
        return value

    @property
    def credentials(self) -> dict[str, str]:
        """Names of credentials with the paths that they are loaded from."""
        return dict(value.split(":", 1) for value in self.settings.get("LoadCredential", []))

    def command(self) -> list[str]:
        """Return the program's command line after systemd's substitutions."""
        specifiers = {"i": "pool-a", "d": "/run/credentials/unit", "S": "/var/lib", "t": "/run"}

        def expand(text: str) -> str:
            return re.sub(r"%(.)", lambda match: specifiers[match[1]], text)

        environment = self.settings.get("Environment", [])
        variables = dict(expand(value).split("=", 1) for value in environment)
        words = self.one("ExecStart").split()
        return [
            re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], expand(part))
            for word in words
            for part in (variables[word[1:]].split() if re.fullmatch(r"\$\w+", word) else [word])
        ]


def sysusers(kind: str) -> set[str]:
    """Return the users (``u``) or groups (``g``) that ``twisted-exec.sysusers.conf`` creates."""
    lines = (SYSTEMD / "twisted-exec.sysusers.conf").read_text(encoding="utf-8").splitlines()
    return {line.split()[1] for line in lines if line.startswith(f"{kind} ")}


def with_own_user(words: list[str]) -> list[str]:
    """Replace users of the units in a command line by the current user, which exists."""
    users = "|".join(sorted(sysusers("u")))
    return [re.sub(rf"(-uid=)({users})$", rf"\g<1>{os.getuid()}", word) for word in words]


def commands() -> set[str]:
    """Return the commands that pip installs."""
    config = configparser.ConfigParser()
    config.read(pages.DOCS.parent / "setup.cfg")
    scripts = config["options.entry_points"]["console_scripts"]
    return {line.partition("=")[0].strip() for line in scripts.strip().splitlines()}

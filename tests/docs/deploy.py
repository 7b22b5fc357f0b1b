"""
What ``docs/deploy`` starts: command lines, as the programs themselves read them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from twisted.python import usage

from . import pages
from .test_options import TAPS

DEPLOY = pages.DOCS / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMD = DEPLOY / "systemd"

TWISTD = ["twistd", "-n", "--pidfile="]
"""How every program is run in the foreground."""


def options_of(words: Sequence[str]) -> usage.Options:
    """
    The options that a program reads from its name and what follows it.

    :raises SystemExit: as the program would end.
    """
    options = TAPS[words[0]]()
    options.parseOptions(list(words[1:]))
    return options


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects in a file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def pods(path: Path) -> Iterator[dict[str, Any]]:
    """The specs of the pods that the objects in a file make."""
    for each in documents(path):
        if each["kind"] in ("Deployment", "DaemonSet"):
            yield each["spec"]["template"]["spec"]


def command_of(container: dict[str, Any]) -> list[str]:
    """A container's command line, with words for what the kubelet puts in place of names."""
    known = {each["name"]: "10.0.0.7" for each in container.get("env", [])}
    return [re.sub(r"\$\((\w+)\)", lambda name: known[name[1]], word) for word in container["args"]]


class Unit:
    """
    A unit of systemd.

    :ivar settings: each key with its values, continued lines joined.
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
        """A key that is there once."""
        (value,) = self.settings[key]
        return value

    @property
    def credentials(self) -> dict[str, str]:
        """Each credential's name, with the path that it is loaded from."""
        return dict(value.split(":", 1) for value in self.settings.get("LoadCredential", []))

    def command(self) -> list[str]:
        """What is run, after systemd's own substitutions."""
        specifiers = {"i": "pool-a", "d": "/run/credentials/unit", "S": "/var/lib", "t": "/run"}

        def meant(text: str) -> str:
            return re.sub(r"%(.)", lambda found: specifiers[found[1]], text)

        told = self.settings.get("Environment", [])
        variables = dict(meant(value).split("=", 1) for value in told)
        return [
            re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], meant(word))
            for word in self.one("ExecStart").split()
        ]


def made(kind: str) -> set[str]:
    """The users (``u``) or groups (``g``) that ``twisted-exec.sysusers.conf`` makes."""
    lines = (SYSTEMD / "twisted-exec.sysusers.conf").read_text(encoding="utf-8").splitlines()
    return {line.split()[1] for line in lines if line.startswith(f"{kind} ")}


def with_own_user(words: list[str]) -> list[str]:
    """A command line that names users, on a host that has none of them."""
    users = "|".join(sorted(made("u")))
    return [re.sub(rf"(-uid=)({users})$", rf"\g<1>{os.getuid()}", word) for word in words]

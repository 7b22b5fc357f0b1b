"""
Three programs with the page of the API server, and the machines and users that its tests need.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from tests.flows.resuming import BUSY, CabledDeployment

from . import hostile_machine

HOSTILE = "hostile"
"""Class of the hostile machine."""
ADMINISTRATORS = "system:masters"


class WebDeployment(CabledDeployment):
    """
    A deployment whose users have tokens, and reach the API server over the near cable.

    :ivar tokens: tokens by user name; :meth:`write_tokens` puts changes into effect.
    :ivar groups: groups by user name; all other users are administrators.
    :ivar api_options: further options of each API server.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.tokens = {"ada": "token-of-ada", "bob": "token-of-bob"}
        self.groups: dict[str, str] = {}
        self.api_options: tuple[str, ...] = ()
        self.write_tokens()
        self.hostile_directory = (self.directory / "hostile").resolve()
        self.hostile_directory.mkdir()
        path = self.directory / "runtime.yaml"
        config = yaml.safe_load(path.read_text())
        command = [sys.executable, hostile_machine.__file__, str(self.hostile_directory)]
        shell = next(each for each in config["classes"] if each["name"] == "shell")
        config["classes"].append(shell | {"name": HOSTILE, "command": command})
        path.write_text(yaml.safe_dump(config))

    def set_speed(self, bytes_per_second: float) -> None:
        """Let busy machines print this much; before the start."""
        path = self.directory / "runtime.yaml"
        config = yaml.safe_load(path.read_text())
        busy = next(each for each in config["classes"] if each["name"] == BUSY)
        busy["command"][-1] = str(bytes_per_second)
        path.write_text(yaml.safe_dump(config))

    def write_tokens(self) -> None:
        """Replace the token file; the API server refuses tokens that it no longer contains."""
        tokens = self.tokens.items()
        lines = [
            f"{token},{user},{user},{self.groups.get(user, ADMINISTRATORS)}\n"
            for user, token in tokens
        ]
        new = self.directory / "tokens.new"
        new.write_text("".join(lines))
        new.replace(self.directory / "tokens.csv")

    async def start(self) -> None:
        await super().start()
        await self.create_class(HOSTILE, "64Mi")

    async def start_api(self, *options: str) -> None:
        tokens = f"--token-auth-file={self.path('tokens.csv')}"
        await super().start_api(tokens, *self.api_options, *options)

    async def start_runtime(self, *options: str) -> None:
        pair = self.pki.issue_recorder("host-a", replace=True)
        recorder = (f"--recorder-certificate={pair.certificate}", f"--recorder-key={pair.key}")
        # A slow machine may need more than the usual minute until a user is back.
        await super().start_runtime("--resume-seconds=600", *recorder, *options)

    @property
    def console_url(self) -> str:
        return f"https://127.0.0.1:{self.near.port}/console/"

    @property
    def received(self) -> bytes:
        """Return what the hostile machine has received."""
        record: Any = self.hostile_directory / "received"
        return bytes(record.read_bytes()) if record.exists() else b""

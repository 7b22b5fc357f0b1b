"""
Credential plugins for tests: real programs, each a script of a few lines.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from twisted_exec.kube.kubeconfig.client_config import NEVER, ExecPlugin

V1 = "client.authentication.k8s.io/v1"

_HEAD = f"""#!{sys.executable}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
with open(os.path.join(here, "runs"), "a") as runs:
    runs.write(json.dumps({{"info": info, "args": sys.argv[1:], "env": os.environ.get("N")}}) + "\\n")
count = len(open(os.path.join(here, "runs")).readlines())
def answer(**status):
    print(json.dumps({{
        "kind": "ExecCredential", "apiVersion": info["apiVersion"], "status": status
    }}), flush=True)
"""


class PluginScript:
    """
    A plugin script in its own directory.

    :param body: Python; ``answer(token=...)`` prints a credential, ``count`` is the
        number of this run, ``here`` the directory, ``info`` its input from KUBERNETES_EXEC_INFO.
    """

    def __init__(self, directory: Path, body: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory.absolute()
        self.path = str(self.directory / "plugin")
        Path(self.path).write_text(_HEAD + body)
        os.chmod(self.path, 0o700)

    def runs(self) -> list[dict[str, Any]]:
        """Return the input of each run: ``info``, ``args`` and ``env`` (the variable N)."""
        try:
            lines = (self.directory / "runs").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def plugin(self, **more: Any) -> ExecPlugin:
        """Return the plugin's entry as in a kubeconfig."""
        return ExecPlugin(self.path, **{"api_version": V1, "interactive_mode": NEVER, **more})

"""
Print the manifest of the plugin ``console`` for krew, with the checksums of archives that build.py wrote.

::

    python docs/deploy/archive/krew.py --url=https://example.org/releases/0.2.0/ dist/*.tar.gz > console.yaml

The archives may be of several systems, and must have one version.  ``--url`` is where they will be published.
Source of the format: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from packaging.version import Version

NAME = re.compile(
    r"(twisted-exec-client-(?P<version>.+)-(?P<os>linux|darwin)-(?P<arch>amd64|arm64))\.tar\.gz"
)
SHORT = "Open the serial console of a machine"
DESCRIPTION = """\
Opens the serial console of a machine in this terminal, through a
Kubernetes-style API server of twisted-exec or ironcore. Sessions survive lost
connections, several users share one console, and `kubectl console --help`
lists what else it does.
"""
CAVEATS = """\
`kubectl console NAME` needs an API server that has machines: see
`kubectl api-resources | grep machines`.
The directory of the plugin has the command twisted-exec, too, and
kubectl_complete-console for kubectl's completion: link them into a directory of PATH.
"""


def manifest(archives: Iterable[Path], url: str) -> dict[str, Any]:
    """
    Return the manifest.

    :param url: of the directory that will have the archives.
    :raises ValueError: a name is not that of an archive, or the versions differ.
    """
    platforms, versions = [], set()
    for archive in sorted(archives):
        name = NAME.fullmatch(archive.name)
        if name is None:
            raise ValueError(f"{archive.name} is not an archive of build.py")
        versions.add(name["version"])
        platforms.append(
            {
                "selector": {"matchLabels": {"os": name["os"], "arch": name["arch"]}},
                "uri": f"{url.rstrip('/')}/{quote(archive.name)}",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "files": [{"from": f"{name[1]}/*", "to": "."}],
                "bin": "kubectl-console",
            }
        )
    if len(versions) != 1:
        raise ValueError(f"the archives have several versions: {', '.join(sorted(versions))}")
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "console"},
        "spec": {
            "version": semantic(versions.pop()),
            "shortDescription": SHORT,
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": platforms,
        },
    }


def semantic(version: str) -> str:
    """Return a version of Python's as krew wants it, such as ``v0.2.0`` or ``v0.3.0-rc1``."""
    parsed = Version(version)
    early = [f"{kind}{number}" for kind, number in [parsed.pre or ("", "")] if kind]
    if parsed.dev is not None:
        early.append(f"dev{parsed.dev}")
    suffix = f"-{'.'.join(early)}" if early else ""
    local = f"+{parsed.local}" if parsed.local else ""
    return f"v{parsed.major}.{parsed.minor}.{parsed.micro}{suffix}{local}"


def _literal(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Keep the lines of a text."""
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the manifest of the plugin for krew.")
    parser.add_argument("--url", required=True, help="where the archives will be published")
    parser.add_argument("archives", type=Path, nargs="+", metavar="ARCHIVE")
    options = parser.parse_args()
    try:
        plugin = manifest(options.archives, options.url)
    except (OSError, ValueError) as problem:
        sys.exit(f"krew.py: {problem}")
    yaml.SafeDumper.add_representer(str, _literal)
    yaml.safe_dump(plugin, sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()

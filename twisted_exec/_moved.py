"""
Import paths of earlier releases that still work, and the present paths of the modules.

An old path can still be imported; each name that is taken from it comes with a :class:`DeprecationWarning` that
says the new path.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

TYPE_CHECKING = False  # typing would be an import at every start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MOVED = {
    "api.kinds.common.schemas": "api.kinds.validation",
    "api.kinds.common.validation": "api.kinds.validation",
    "api.kinds.shapes": "api.kinds.validation",
    "api.meta": "api.resource",
    "auth.groups": "api.users",
    "console.journal": "journal.journal",
    "console.session": "console.line",
    "kube.consoles.endpoint": "kube.console_endpoint",
    "kube.exec": "kube.console_endpoint",
    "kube.following": "kube.kubeconfig.reloading",
    "kube.informers.reflector": "kube.informers",
    "kube.watch": "kube.informers",
    "observe.audit": "program.audit",
    "program.clock": "tls.fast.loop",
    "program.loop": "tls.fast.loop",
    "runtimes.lines.claims": "runtimes.lines.shared_line",
    "runtimes.lines.serial_port": "runtimes.lines.serial",
    "runtimes.serial_port": "runtimes.lines.serial",
    "runtimes.stream_server": "runtimes.serving.stream_server",
    "testing.attachment": "testing.console",
    "testing.flow": "testing.console",
    "testing.http": "testing.network",
    "tls.descriptor": "tls.fast.descriptor",
    "tls.pki.directory": "tls.pki",
    "tls.transport": "tls.fast.transport",
    "wire.com_port": "wire.telnet",
}
"""Old paths and new ones, below this package."""

_RENAMED = {
    "kube.exec:open_console": "kube.console:open_console",
    "kube.following:FollowedConfig": "kube.kubeconfig.reloading:ReloadingConfig",
    "kube.following:FollowedFiles": "kube.kubeconfig.reloading:ReloadingFiles",
    "kube.watch:Backoff": "control.backoff:Backoff",
    "wire.com_port:Event": "wire.telnet:PortEvent",
}
"""Names with another new path than their module has in ``_MOVED``, or with a new name: ``PATH:NAME``, old and new."""

_PARENTS = {path.rpartition(".")[0] for path in _MOVED}


def warn(old: str, change: str) -> None:
    """
    Warn the code that uses an old name: it works for one more release.

    :param change: what it is instead, such as ``is options``.
    """
    warnings.warn(
        f"{old} {change} since 0.2.0, and goes with 0.3.0", DeprecationWarning, stacklevel=3
    )


class _Moved(ModuleType):
    def __getattr__(self, name: str) -> Any:
        package, _, old = self.__name__.partition(".")
        if name.startswith("__") or old not in _MOVED:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        path, _, new = _RENAMED.get(f"{old}:{name}", f"{_MOVED[old]}:{name}").partition(":")
        value = getattr(import_module(f"{package}.{path}"), new)
        warn(f"{self.__name__}.{name}", f"is {package}.{path}.{new}")
        return value


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, old = fullname.partition(".")
        if package != __package__ or not (old in _MOVED or old in _PARENTS):
            return None
        return ModuleSpec(fullname, self, is_package=old in _PARENTS)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Moved(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: :class:`_Moved` looks a name up when a program uses it."""


def install() -> None:
    """Make old paths importable."""
    sys.meta_path.append(_Finder())

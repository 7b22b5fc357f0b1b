"""
A kubeconfig that is followed: read again when one of its files changes.

Credentials are renewed by replacing the file; a program that holds sessions for
others is not restarted for that.  What cannot be read, such as a file that is
being written, changes nothing: the last good configuration stays in use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from twisted.logger import Logger

from twisted_exec.kube.kubeconfig import ClientConfig, KubeConfigError, file_names, load


class FollowedConfig:
    """
    The configuration that kubectl would use now.

    Parameters and errors are those of :func:`~twisted_exec.kube.kubeconfig.load`.
    """

    _log = Logger()

    def __init__(
        self,
        path: str | None = None,
        context: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._path, self._context = path, context
        self._environ = dict(os.environ if environ is None else environ)
        self._stamp = self._stamps()
        self._config = load(path, context, environ=self._environ)

    def current(self) -> ClientConfig:
        """The configuration as its files are now, or as they last made sense."""
        stamp = self._stamps()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._config = load(self._path, self._context, environ=self._environ)
            except KubeConfigError as error:
                self._log.warn(
                    "the kubeconfig has changed and cannot be used, the old one stays: {error}",
                    error=str(error),
                )
        return self._config

    def _stamps(self) -> list[tuple[str, int, int, int]]:
        """One per file; a file that is gone has none."""
        stamps = []
        try:
            for name in file_names(self._path, self._environ):
                told = os.stat(name)
                stamps.append((name, told.st_ino, told.st_mtime_ns, told.st_size))
        except (OSError, KubeConfigError):
            pass  # loading says it better
        return stamps

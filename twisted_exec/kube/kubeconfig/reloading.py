"""
Configurations that follow their files: the kubeconfig, and the files that it names.

While changed files cannot be used, the last good configuration stays in use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from twisted.logger import Logger

from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.connection import tls
from twisted_exec.kube.kubeconfig.entries import file_names
from twisted_exec.kube.kubeconfig.headers import auth_headers
from twisted_exec.kube.kubeconfig.loader import Overrides, load


class ReloadingFiles:
    """
    The contents of the files that a configuration names: CA, certificate, key and token.

    They are replaced together, once all of them can be used and the key fits the certificate.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._stamp: object = None
        self._good: ClientConfig | None = None

    def current(self, config: ClientConfig) -> ClientConfig:
        """
        Return the configuration with the contents of its files.

        While these are not usable, return the last configuration that was, with its server: new
        credentials and an old server, or the other way round, may not belong together.
        """
        stamp = (config, [each.stamp() for each in _named(config)])
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._good = _read(config)
            except KubeConfigError as error:
                if self._good is None:
                    self._stamp = None  # there is no good value yet, so read again each time
                    return config
                self._log.warn(
                    "the files of a kubeconfig have changed and cannot be used, the old contents stay: {error}",
                    error=str(error),
                )
        return config if self._good is None else self._good


def _named(config: ClientConfig) -> tuple[Material, ...]:
    return config.ca, config.certificate, config.key, Material(path=config.token_file)


def _read(config: ClientConfig) -> ClientConfig:
    ca, certificate, key = (
        Material(data=each.read()) for each in (config.ca, config.certificate, config.key)
    )
    current = replace(config, ca=ca, certificate=certificate, key=key)
    if current.url.scheme == "https":
        tls(current)
    if config.token_file:
        # Without the token, so that a file that cannot be read fails here.
        headers = auth_headers(replace(config, token=""))
        # The file is still read for each request; this token serves while the file cannot be read.
        current = replace(current, token=headers[0][1].removeprefix(b"Bearer ").decode("ascii"))
    return current


class ReloadingConfig:
    """
    The configuration that kubectl would use, kept current.

    Parameters and errors are those of :func:`~twisted_exec.kube.kubeconfig.loader.load`.
    """

    _log = Logger()

    def __init__(
        self,
        path: str | None = None,
        context: str | None = None,
        *,
        overrides: Overrides | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._path, self._context, self._overrides = path, context, overrides
        self._environ = dict(os.environ if environ is None else environ)
        self._files = ReloadingFiles()
        self._stamp = self._stamps()
        self._config = self._load()

    def current(self) -> ClientConfig:
        """Return the configuration from the current files, or the last good one."""
        return self._files.current(self.named())

    def named(self) -> ClientConfig:
        """
        Return the current configuration without the contents of its files, which are read for each use.

        For a session that outlives its certificate: it resumes with the next one.
        """
        stamp = self._stamps()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._config = self._load()
            except KubeConfigError as error:
                self._log.warn(
                    "the kubeconfig has changed and cannot be used, the old one stays: {error}",
                    error=str(error),
                )
        return self._config

    def _load(self) -> ClientConfig:
        return load(self._path, self._context, overrides=self._overrides, environ=self._environ)

    def _stamps(self) -> list[tuple[str, object]]:
        try:
            names = file_names(self._path, self._environ)
        except KubeConfigError:
            return []  # load() reports it
        return [(name, Material(path=name).stamp()) for name in names]

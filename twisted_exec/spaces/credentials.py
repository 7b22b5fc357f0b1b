"""
Who we are in a Space, as its Secret says: taken anew when what it holds is other than it was.

What cannot be used leaves the last that could in force, and the log says so once.  A Secret that is taken
away takes the credentials along.

There are two ways by which a Secret is heard of: a watch, and a look when a server did not take what we
showed it.  The look may be ahead of the watch, which must not bring back then what was there before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from twisted.logger import Logger

from twisted_exec.kube.config import ClientConfig, KubeConfigError
from twisted_exec.kube.interfaces import Object
from twisted_exec.spaces.kubeconfigs import config_of, read, source_of
from twisted_exec.spaces.view import SecretRef

AHEAD_SECONDS = 10.0
"""For so long a look may be ahead of the watch; a cluster that was put back to an older state counts on."""


class SpaceCredentials:
    """
    One Space's.

    :param label: what the Space is called in the log.
    :param seconds: a steady clock's.
    :ivar config: as of now, or ``None``.
    :ivar problem: why there is none, or empty.
    """

    _log = Logger()

    def __init__(self, label: str, seconds: Callable[[], float]) -> None:
        self._label, self._seconds = label, seconds
        self.config: ClientConfig | None = None
        self.problem = "its Secret was not read yet"
        self._hash, self._wrong = b"", ""
        self._ahead, self._ahead_until = 0, 0.0

    def watched(self, ref: SecretRef, secret: Object | None) -> bool:
        """
        The watch has a Secret, or knows that there is none.

        :return: whether there is another configuration now.
        """
        if secret is not None and self._is_behind(secret):
            return False
        return self._take(ref, secret)

    def looked(self, ref: SecretRef, secret: Object) -> bool:
        """The same, of what somebody looked at just now."""
        self._ahead = _version(secret)
        self._ahead_until = self._seconds() + AHEAD_SECONDS
        return self._take(ref, secret)

    def missing(self, problem: str) -> bool:
        """There is no Secret to read; the last configuration goes. :return: as :meth:`watched`."""
        had, self.config, self._hash = self.config, None, b""
        self.problem = problem
        return had is not None

    def _is_behind(self, secret: Object) -> bool:
        if self._ahead and self._seconds() < self._ahead_until:
            return 0 < _version(secret) < self._ahead
        return False

    def _take(self, ref: SecretRef, secret: Object | None) -> bool:
        if secret is None:
            return self.missing(f"{ref} does not exist")
        try:
            content = read(secret)
            digest = hashlib.sha256(content).digest()
            if digest == self._hash:
                return False
            config = config_of(content, source_of(secret))
        except KubeConfigError as error:
            self._refuse(str(error))
            return False
        self._hash, self._wrong, self.problem = digest, "", ""
        had, self.config = self.config, config
        return config != had

    def _refuse(self, wrong: str) -> None:
        if self.config is None:
            self.problem = wrong
        elif wrong != self._wrong:
            told = "{space}: keeping the credentials from before: {why}"
            self._log.warn(told, space=self._label, why=wrong)
        # Whatever comes next is looked at, also what was there before.
        self._hash, self._wrong = b"", wrong


def is_elsewhere(before: ClientConfig, after: ClientConfig) -> bool:
    """
    Both the server's address and who signs for it are others: this can only be another server.

    For where nobody tells what a Space stands for.  A server that moves keeps its CA, and one that is given
    a new CA keeps its address.
    """
    return before.server != after.server and before.ca != after.ca


def _version(secret: Object) -> int:
    """Versions of one object grow; one that is no number says nothing."""
    told = str(secret["metadata"].get("resourceVersion", ""))
    return int(told) if told.isascii() and told.isdigit() else 0

"""OpenSSL's own functions, which pyOpenSSL wraps."""

from __future__ import annotations

from functools import cache
from typing import Any

from OpenSSL import SSL

from twisted_exec.tls.fast import names

lib: Any = None
ffi: Any = None
try:
    from cryptography.hazmat.bindings.openssl.binding import Binding

    lib, ffi = Binding.lib, Binding.ffi
except (ImportError, AttributeError):
    pass  # the check says so


@cache
def owners() -> dict[str, object]:
    """Return the owners of names, for :func:`~twisted_exec.tls.fast.names.is_usable`."""
    return {"Connection": SSL.Connection(SSL.Context(SSL.TLS_METHOD)), "lib": lib}


def can_resume() -> bool:
    """Return whether :func:`session_reused` can be called."""
    return names.is_usable("resumption", owners())


def session_reused(connection: SSL.Connection) -> bool:
    """Return whether the server has resumed the session that this client offered."""
    return bool(lib.SSL_session_reused(connection._ssl))

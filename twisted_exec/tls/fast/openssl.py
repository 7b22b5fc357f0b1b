"""OpenSSL's own functions, which pyOpenSSL wraps."""

from __future__ import annotations

from functools import cache
from typing import Any

from OpenSSL import SSL

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

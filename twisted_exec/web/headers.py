"""
Headers of every response below ``/console``: the page loads nothing from elsewhere, and no other page
frames it.

Browsers enforce them.  A console prints what an attacker may have written, so the policy is the
second line of defence behind the page's own code.
"""

from __future__ import annotations

from twisted.web.http_headers import Headers

# xterm.js sets the style of its elements; the player's emulator is WebAssembly.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def protect(headers: Headers) -> None:
    """Set the headers of a response."""
    for name, value in _HEADERS.items():
        headers.setRawHeaders(name, [value])

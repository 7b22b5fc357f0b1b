"""
The escape key: how a user in raw mode leaves a console.

One control key, ``Ctrl-]`` unless told otherwise, leaves at once; to send that
very key to the machine, choose another with ``--escape`` or ``none``.  There is
no doubling to send it: a second key that must be waited for is a key that
does not always leave.

A guest may switch the user's terminal to a keyboard protocol that reports
control keys as escape sequences: xterm's ``modifyOtherKeys``
(``ESC [ 27 ; MODIFIERS ; CODE ~``) or the one of kitty and others
(``ESC [ CODE ; MODIFIERS u``).  Both forms leave too, else such a guest would
keep its user.  Sources: xterm's ``ctlseqs``,
https://sw.kovidgoyal.net/kitty/keyboard-protocol/.
"""

from __future__ import annotations

import re

DEFAULT = "^]"

_PREFIX = re.compile(r"(?:\^|ctrl[-+]|c-)(.)", re.IGNORECASE | re.DOTALL)

# Modifiers are sent as a bit field plus one.
_CTRL, _LOCKS = 4, 64 | 128

# The longest sequence below is 18 bytes; what of it came earlier is in the tail.
_TAIL_BYTES = 20


def parse_escape(text: str) -> EscapeKey | None:
    """
    Read the value of ``--escape``.

    :param text: ``none``, or a control key as ``^]``, ``ctrl-]`` or ``C-]``
        (letters in either case), or the control character itself.
    :return: ``None`` for ``none``.
    :raises ValueError: anything else; the message is for the user.
    """
    if text.lower() == "none":
        return None
    named = _PREFIX.fullmatch(text)
    if named is not None and "@" <= named[1].upper() <= "_":
        return EscapeKey(ord(named[1].upper()) - 0x40)
    if len(text) == 1 and ord(text) < 0x20:
        return EscapeKey(ord(text))
    raise ValueError(f"{text!r} is no control key: give one such as ^], ctrl-a or C-a, or none")


class EscapeKey:
    """
    Looks for the escape key in what is typed, however the bytes are split.

    Nothing is ever held back: a lone Escape must reach the machine at once.
    So of a key that arrives as a sequence in several pieces, the machine may
    see the beginning.

    :param code: the control character, 0 to 31.
    """

    def __init__(self, code: int) -> None:
        self.code = code
        # Keyboard protocols name a key by its unshifted character.
        plain = ord(chr(code + 0x40).lower())
        self._pattern = re.compile(
            rb"(?P<key>%s)|\x1b\[%d;(?P<kitty>\d{1,3})(?::[12])?u|\x1b\[27;(?P<xterm>\d{1,3});%d~"
            % (re.escape(bytes([code])), plain, plain)
        )
        self._tail = b""

    def __str__(self) -> str:
        return "Ctrl-" + chr(self.code + 0x40)

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """
        Take what was typed.

        :return: what of ``data`` goes to the machine, and whether the key was
            pressed; what was typed after it is dropped.
        """
        window = self._tail + data
        told = len(self._tail)
        for match in self._pattern.finditer(window):
            if match["key"] is not None or _only_ctrl(int(match["kitty"] or match["xterm"])):
                return window[told : max(told, match.start())], True
        self._tail = window[-_TAIL_BYTES:]
        return data, False


def _only_ctrl(modifiers: int) -> bool:
    return (modifiers - 1) & ~_LOCKS == _CTRL

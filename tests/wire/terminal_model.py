"""
A terminal that answers every query it knows: byte by byte, as a model for tests.

It is as lenient as the most lenient terminals: inside a sequence it ignores what it cannot use.
"""

from __future__ import annotations

_SIZES = {11, 13, 14, 15, 16, 18, 19, 20, 21}
_KINDS = {
    *("c", ">c", "=c", "n", "?n", "$p", "?$p", "+p", ">q", "?u", "?S", "$u", "&u", ",u", "$w"),
    *('"v', "x", "*y", "'|", "#|", "#R", "?g", "?m"),
}
_COLOURS = {4, 5, *range(10, 20), 20, 21, 22, 39, 46, 49, 50, 52, 99, *range(701, 709)}
_WORDS = ("Report", "Capabilities", "RequestUpload")


def answered(output: bytes) -> list[str]:
    """Return the queries that the terminal has answered."""
    terminal = Terminal()
    for byte in _characters(output):
        terminal.take(byte)
    terminal.finish()
    return terminal.answered


def _characters(output: bytes) -> list[int]:
    """Return characters; bytes that belong to no character of UTF-8 are one each."""
    found, at = [], 0
    while at < len(output):
        first = output[at]
        most = 1 if 0xC2 <= first < 0xE0 else 2 if first < 0xF0 else 3 if first < 0xF5 else 0
        rest = output[at + 1 : at + 1 + most] if first >= 0xC2 else b""
        size = next((i for i, each in enumerate(rest) if not 0x80 <= each < 0xC0), len(rest))
        # Of characters that are not in ASCII only those matter that are control characters.
        is_control = first == 0xC2 and size
        found.append(rest[0] if is_control else 0x100 if first >= 0xC2 else first)
        at += 1 + size
    return found


class Terminal:
    """
    :ivar answered: the queries so far.
    """

    def __init__(self) -> None:
        self.answered: list[str] = []
        self._state, self._text = "ground", ""

    def take(self, code: int) -> None:
        """Handle one character."""
        if code == 5:
            self.answered.append("ENQ")
        elif code == 0x1B:
            self._leave()
            self._begin("escape")
        elif code in (0x18, 0x1A):
            self._leave()
            self._begin("ground")
        elif code in _INTRODUCERS:
            self._leave()
            self._begin(_INTRODUCERS[code])
            if code == 0x9A:
                self.answered.append("DECID")
        elif code == 0x9C or (code == 7 and self._state == "command"):
            self._leave()
            self._begin("ground")
        elif 0x20 <= code < 0x7F:
            getattr(self, f"_{self._state}")(chr(code))

    def finish(self) -> None:
        """A terminal may decide at the end of a string, which may be missing here."""
        self._leave()

    def _begin(self, state: str) -> None:
        self._state, self._text = state, ""

    def _leave(self) -> None:
        if self._state == "command":
            self._end_command()
        elif self._state == "application":
            self._end_image()

    def _ground(self, character: str) -> None:
        pass

    def _string(self, character: str) -> None:
        pass

    def _escape(self, character: str) -> None:
        if character == "Z":
            self.answered.append("DECID")
        self._begin(_SEVEN_BIT.get(character, "ground"))

    def _control(self, character: str) -> None:
        self._text += character
        if character < "@":
            return
        kind = "".join(each for each in self._text if each not in "0123456789:;")
        numbers = self._text.replace(":", ";").replace("?", "").rstrip("th").split(";")
        if (
            kind in _KINDS
            or (kind == "t" and numbers[0].isdigit() and int(numbers[0]) in _SIZES)
            or (kind == "?h" and "2048" in numbers)
        ):
            self.answered.append(self._text)
        self._begin("ground")

    def _device(self, character: str) -> None:
        self._text += character
        if self._text == "$":
            self.answered.append(self._text)
        if character >= "@":
            if character in "qQ" and ("$" in self._text or "+" in self._text):
                self.answered.append(self._text)
            self._begin("string")

    def _command(self, character: str) -> None:
        self._text += character

    def _end_command(self) -> None:
        number, _, rest = self._text.partition(";")
        if not number.isdigit():
            return
        fields = rest.replace(":", ";").replace("=", ";").replace(",", ";").split(";")
        if (
            (int(number) in _COLOURS and any(each.startswith("?") for each in fields))
            or int(number) in (60, 61)
            or (int(number) == 1337 and rest.startswith(_WORDS))
            or (int(number) == 5522 and "type=read" in rest)
        ):
            self.answered.append(self._text)

    def _application(self, character: str) -> None:
        self._text += character

    def _end_image(self) -> None:
        if not self._text.startswith("G"):
            return
        keys = self._text[1:].partition(";")[0].split(",")
        if "a=q" in keys or ("q=2" not in keys and any(each[:2] in ("i=", "I=") for each in keys)):
            self.answered.append(self._text)


_INTRODUCERS = {
    0x9B: "control",
    0x9D: "command",
    0x90: "device",
    0x9F: "application",
    0x9A: "ground",
    0x98: "string",
    0x9E: "string",
}
_SEVEN_BIT = {
    "[": "control",
    "]": "command",
    "P": "device",
    "_": "application",
    "X": "string",
    "^": "string",
}

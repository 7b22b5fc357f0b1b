"""
Declarations of options, and settings whose fields have their values.

A :class:`ProgramOption` is declared once: in the metadata of the field that it sets, or among the
``more`` of a class of options.  Command line, file, help and manual page follow from that, and
:func:`settings_of` fills the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, fields, replace
from typing import Any, TypeVar

from twisted.python.usage import Options, UsageError

_Settings = TypeVar("_Settings")
_UNSET: Any = object()

OPTION = "option"
"""Key of a :class:`ProgramOption` in the metadata of a field, or of a dataclass whose fields have options."""


@dataclass(frozen=True)
class Required:
    """
    A required option.

    :param what: its value, in a few words, for the message when it is missing.
    :param unless: other options with which it is not required.
    """

    what: str = ""
    unless: Sequence[str] = ()


@dataclass(frozen=True)
class ProgramOption:
    """
    An option of a program.  An option without ``read`` whose default is true or false is a flag.

    :param read: converts the value; a :class:`ValueError` refuses it.
    :param default: by default that of the field, or ``None``.  A flag reverses it.
    :param group: heading in the help, by default that of the class of options.
    :param reverse: help of the flag ``no-NAME``, for an option that is true by default.
    :param is_path: made absolute, because twistd changes the working directory when it becomes a daemon.
    :param listens: gives an address at which the program listens.
    :param several: may be repeated; the value is a list.
    :param convert: converts the option's value to that of the field.
    """

    name: str
    help: str
    read: Callable[[str], Any] | None = None
    _: KW_ONLY
    default: Any = _UNSET
    group: str = ""
    short: str | None = None
    reverse: str = ""
    is_path: bool = False
    listens: bool = False
    several: bool = False
    required: Required | None = None
    convert: Callable[[Any], Any] | None = None

    @property
    def is_flag(self) -> bool:
        """Return whether the option has no value."""
        return isinstance(self.default, bool) and self.read is None

    @property
    def flags(self) -> list[list[Any]]:
        """Entries of ``optFlags``."""
        own = [self.name, self.short, self.help]
        return [own, [f"no-{self.name}", None, self.reverse]] if self.reverse else [own]

    @property
    def parameter(self) -> list[Any]:
        """An entry of ``optParameters``."""
        default = None if self.default is _UNSET else self.default
        entry = [self.name, self.short, default, self.help]
        return entry if self.read is None else [*entry, self.read]

    @property
    def method(self) -> Callable[[Any, str], None]:
        """The method of an option that may be repeated."""

        def opt(options: Options, text: str) -> None:
            try:
                value = text if self.read is None else self.read(text)
            except ValueError as error:
                raise UsageError(f"--{self.name}: {error}") from None
            options[self.name] += value if isinstance(value, list) else [value]

        opt.__doc__ = self.help
        return opt

    def value(self, options: Mapping[str, Any]) -> Any:
        """Return the value of the field, or ``None`` if the option has none."""
        if self.reverse:
            return not options[f"no-{self.name}"]
        value = options[self.name]
        if self.is_flag:
            return bool(value) != self.default
        return value if self.convert is None else self.convert(value)


def options_of(settings: type) -> list[ProgramOption]:
    """Return the options of a dataclass."""
    options: list[ProgramOption] = []
    for each in fields(settings):
        option = each.metadata.get(OPTION)
        if isinstance(option, type):
            options += options_of(option)
        elif option is not None:
            options.append(_option_of(each))
    return options


def _option_of(field: Field[Any]) -> ProgramOption:
    option: ProgramOption = field.metadata[OPTION]
    if option.default is not _UNSET or field.default is MISSING:
        return option
    return replace(option, default=field.default)


def settings_of(settings: type[_Settings], options: Mapping[str, Any], **more: Any) -> _Settings:
    """
    Return settings whose fields have the values of their options.

    :param more: fields that no single option sets.
    """
    for each in fields(settings):  # type: ignore[arg-type]
        if OPTION in each.metadata and each.name not in more:
            part = each.metadata[OPTION]
            is_part = isinstance(part, type)
            value = settings_of(part, options) if is_part else _option_of(each).value(options)
            if value is not None:
                more[each.name] = value
    return settings(**more)

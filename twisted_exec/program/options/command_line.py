"""
Options of programs under twistd: command line, configuration file and help.

A configuration file is TOML with the names of options as keys; the command line takes precedence.

A :class:`ProgramOption` is declared once: in the metadata of the field that it sets, or among the
``more`` of a class of options.  Command line, file, help and manual page follow from that, and
:func:`settings_of` fills the fields.
"""

from __future__ import annotations

import difflib
import getopt
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, fields, replace
from functools import partial, wraps
from typing import Any, ClassVar, NoReturn, TypeVar

from twisted.logger import (
    FilteringLogObserver,
    LogBeginner,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
)
from twisted.python.usage import Options, UsageError

from twisted import __version__ as twisted_version
from twisted_exec import build
from twisted_exec.api import quantity
from twisted_exec.program.audit import JSONLinesAudit, Rotation
from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.program.disk_thread import Files
from twisted_exec.program.handover.interfaces import HANDOVER_SECONDS, LINGER_SECONDS
from twisted_exec.program.handover.predecessor import predecessor, tell_failure
from twisted_exec.program.handover.twistd import prepare_successor
from twisted_exec.tls.files import regular
from twisted_exec.wire.upgrade import read_origin

CONFIG = "config"
_LEVEL_OPTIONS = {"log-level", "quiet"}
"""Options for the level of the log: one on the command line replaces both of a file."""
_MOST_CONFIG_BYTES = 1 << 20


def path_in(options: Options, arguments: Sequence[str]) -> str:
    """Return the value of ``--config`` on a command line; empty if it has none."""
    paths = [text for name, text in _option_pairs(options, arguments) if name == CONFIG]
    return paths[-1] if paths else ""


def arguments_from(path: str, options: Options, arguments: Sequence[str]) -> list[str]:
    """
    Return the options of a file as arguments.

    Options that the command line has are left out: those that may be repeated would otherwise have
    the values of both.

    :raises UsageError: the file cannot be used.
    """
    replaced = {name for name, _ in _option_pairs(options, arguments)}
    replaced |= {_opposite_flag(name) for name in replaced}
    if not replaced.isdisjoint(_LEVEL_OPTIONS):
        replaced |= _LEVEL_OPTIONS
    result: list[str] = []
    for key, value in _read_config(path).items():
        words = _arguments(options, f"--{CONFIG} {path}", key, value)
        if key not in replaced:
            result += words
    return result


def _option_pairs(options: Options, arguments: Sequence[str]) -> list[tuple[str, str]]:
    try:
        pairs, _ = getopt.getopt(list(arguments), options.shortOpt, [*options.longOpt])
    except getopt.error:
        return []  # the program parses the same arguments, and reports it
    names = [(name.lstrip("-"), text) for name, text in pairs]
    return [(options.synonyms.get(name, name), text) for name, text in names]


def _arguments(options: Options, where: str, key: str, value: object) -> list[str]:
    parameters = {name.removesuffix("=") for name in options.longOpt if name.endswith("=")}
    flags = {name for name in options.longOpt if not name.endswith("=")} - {"help", "version"}
    keys = (parameters | flags) - {CONFIG}
    if key not in keys:
        near = difflib.get_close_matches(key, sorted(keys), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{where}: unknown key {key!r}{hint}")
    if key in flags:
        if not isinstance(value, bool):
            raise UsageError(f"{where}: {key} must be true or false, not {value!r}")
        return [f"--{key}"] if value else []
    is_repeatable = hasattr(options, f"opt_{key.replace('-', '_')}")
    values = value if is_repeatable and isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            kind = "a list of strings" if is_repeatable else "a string or a number"
            raise UsageError(f"{where}: {key} must be {kind}, not {each!r}")
    return [f"--{key}={each}" for each in values]


def _opposite_flag(flag: str) -> str:
    """Return the flag that reverses another: ``no-scheduler`` of ``scheduler``."""
    return flag[3:] if flag.startswith("no-") else f"no-{flag}"


def _read_config(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb", opener=regular) as file:
            content = file.read(_MOST_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--{CONFIG}: cannot read {path}: {why}") from None
    if len(content) > _MOST_CONFIG_BYTES:
        raise UsageError(f"--{CONFIG}: {path} is larger than {_MOST_CONFIG_BYTES >> 20} MiB")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--{CONFIG}: {path} is not TOML: {error}") from None


LEVELS = ("debug", "info", "warn", "error")
DEFAULT_LEVEL, QUIET_LEVEL = "info", "warn"


def read_level(text: str) -> str:
    """
    Check a level of the log.

    :raises ValueError: it is no level.
    """
    if text not in LEVELS:
        raise ValueError(f"{text!r} is no level: give {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    return text


def _log_level(text: str) -> str:
    try:
        return read_level(text)
    except ValueError as error:
        raise ValueError(f"--log-level: {error}") from None


def limit_log(level: str, beginner: LogBeginner = globalLogBeginner) -> None:
    """Leave messages below a level out of the log, once it begins."""
    begin = partial(LogBeginner.beginLoggingTo, beginner)
    least = LogLevel.levelWithName(level)

    def limited(observers: Any, *arguments: Any, **more: Any) -> None:
        predicate = LogLevelFilterPredicate(defaultLogLevel=least)
        begin(
            [FilteringLogObserver(observer, [predicate]) for observer in observers],
            *arguments,
            **more,
        )

    beginner.beginLoggingTo = limited  # type: ignore[method-assign]


_WEEK_SECONDS = 7 * 24 * 3600
_CERTIFICATES = (
    "cert-file",
    "ca-file",
    "client-certificate",
    "certificate-authority",
    "recorder-certificate",
)


_LEVEL_HELP = f"Least level of the log: {', '.join(LEVELS)}"
_QUIET_HELP = "Log only warnings and errors; --log-level takes precedence."


@dataclass(frozen=True)
class Required:
    """
    A required option.

    :param what: its value, in a few words, for the message when it is missing.
    :param unless: other options with which it is not required.
    """

    what: str = ""
    unless: Sequence[str] = ()


_Settings = TypeVar("_Settings")
_UNSET: Any = object()
OPTION = "option"
"""Key of a :class:`ProgramOption` in the metadata of a field, or of a dataclass whose fields have options."""


@dataclass(frozen=True)
class ProgramOption:
    """
    An option of a program.  An option without ``read`` whose default is true or false is a flag.

    :param read: converts the value; a :class:`ValueError` refuses it.
    :param default: by default that of the field, or ``None``.  A flag reverses it.
    :param group: heading in the help, by default that of the class of options.
    :param reverse: help of the flag ``no-NAME``, for an option that is true by default.
    :param is_path: made absolute, because twistd changes the working directory when it becomes a daemon.
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


class ProgramOptions(Options):
    """
    Options with a configuration file and with error messages of one line, which name the option.

    :cvar settings_class: dataclass whose fields have options.
    :cvar paths: further options that are converted to absolute paths.
    :cvar groups: further headings in their order, each with the names of further options.
    """

    _LAST = "Program"

    program = ""
    settings_class: ClassVar[type | None] = None
    more: Sequence[ProgramOption] = ()
    paths: Sequence[str] = ()
    required: Mapping[str, Required] = {}
    group = _LAST
    groups: Mapping[str, Sequence[str]] = {}
    optParameters: list[list[Any]] = [
        [CONFIG, None, None, "TOML file with options; the command line takes precedence."],
        # No default, so that parseOptions knows whether it was chosen.
        ["log-level", None, None, f"{_LEVEL_HELP}; default: {DEFAULT_LEVEL}.", _log_level],
    ]
    optFlags: list[list[Any]] = [["quiet", None, _QUIET_HELP]]
    _headings: dict[str, str] = dict.fromkeys(
        (CONFIG, "log-level", "quiet", "help", "version"), group
    )
    _declared: Sequence[ProgramOption] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = cls.__dict__
        settings = own.get("settings_class")
        inherited_names = {
            each.name for base in cls.__bases__ for each in getattr(base, "all_declared", list)()
        }
        declared = [*(options_of(settings) if settings else ()), *own.get("more", ())]
        cls._declared = [each for each in declared if each.name not in inherited_names]
        single = [each for each in cls._declared if not each.several]
        parameters = [each.parameter for each in single if not each.is_flag]
        cls.optParameters = [
            _naming(*each) for each in (*own.get("optParameters", ()), *parameters)
        ]
        flags = [flag for each in single if each.is_flag for flag in each.flags]
        cls.optFlags = [*own.get("optFlags", ()), *flags]
        for each in cls._declared:
            if each.several:
                setattr(cls, f"opt_{each.name.replace('-', '_')}", each.method)
        names = [each[0] for each in (*cls.optParameters, *cls.optFlags)]
        names += [name[4:].replace("_", "-") for name in own if name.startswith("opt_")]
        chosen = {name: title for title, listed in own.get("groups", {}).items() for name in listed}
        for each in cls._declared:
            chosen |= dict.fromkeys((each.name, f"no-{each.name}"), each.group or cls.group)
        inherited: dict[str, str] = {}
        for base in reversed(cls.__bases__):
            inherited |= getattr(base, "_headings", {})
        cls._headings = {**inherited, **{name: chosen.get(name, cls.group) for name in names}}
        cls.required = {
            **{each.name: each.required for each in cls._declared if each.required is not None},
            **own.get("required", {}),
        }

    def __init__(self) -> None:
        super().__init__()
        for option in self.all_declared():
            if option.several:
                self[option.name] = []
            elif option.read is not None and isinstance(option.default, str):
                self[option.name] = option.read(option.default)  # twisted converts no defaults
        # Docstrings of opt_ methods have line breaks and indentation, which Twisted keeps.
        self.docs = {name: " ".join((text or "").split()) for name, text in self.docs.items()}
        for name, required in self._required().items():
            unless = " or ".join(f"--{other}" for other in required.unless)
            mark = f"required unless {unless}" if unless else "required"
            self.docs[name] = f"{self.docs[name].rstrip('.')} ({mark})."

    def opt_help(self) -> None:
        """Display this help and exit."""
        _print_and_exit(str(self))

    def opt_version(self) -> None:
        """Show the versions of this program and of Twisted."""
        name = self.program or "twisted-exec"
        _print_and_exit(f"{name} {build()} (Twisted {twisted_version})")

    def parseArgs(self, *surplus: str) -> None:
        """:raises UsageError: there is an argument without an option."""
        if surplus:
            raise UsageError(f"{surplus[0]!r} belongs to no option")

    def getUsage(self, width: int | None = None) -> str:
        """
        Return the help text: options under headings, without empty defaults.

        :param width: in columns, by default ``$COLUMNS``, or 80.
        """
        width = width or _columns()
        longest = max(map(len, self.longOpt))
        if width - longest >= _LEAST_COLUMNS:
            text = _NO_DEFAULT.sub("", super().getUsage(width))
        else:
            # Beside long option names Twisted leaves space for two words, so descriptions go below
            # them.
            lines = _NO_DEFAULT.sub("", super().getUsage(_ENDLESS_COLUMNS)).splitlines()
            text = "".join(f"{_below(line, width)}\n" for line in lines)
        return self._under_headings(text)

    def _under_headings(self, text: str) -> str:
        options, blank, description = text.partition("\n\n")
        sections: dict[str, list[str]] = {}
        section: list[str] = []
        for line in options.splitlines()[1:]:
            if match := _OPTION_NAME.match(line):
                section = sections.setdefault(self._headings.get(match[1], self.group), [])
            section.append(line)
        classes = [cls for cls in type(self).__mro__ if issubclass(cls, ProgramOptions)]
        order = [title for cls in classes for title in cls._titles() if title != self._LAST]
        titles = sorted(sections, key=lambda title: [*order, title].index(title))
        return (
            "\n".join(
                f"{title}:\n" + "".join(f"{line}\n" for line in sections[title]) for title in titles
            )
            + blank[:1]
            + description
        )

    @classmethod
    def _titles(cls) -> list[str]:
        own = cls.__dict__
        groups = [each.group for each in own.get("_declared", ()) if each.group]
        return [*own.get("groups", ()), *groups, own.get("group", ProgramOptions.group)]

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """
        Read the command line and the configuration file.

        :raises SystemExit: with a message and exit code 1; with 0 after the help or the version.
        """
        arguments = list(sys.argv[1:] if options is None else options)
        if self.parent is not None and predecessor() is not None:
            prepare_successor(self.parent)
        try:
            super().parseOptions([*self._from_file(arguments), *arguments])
        except UsageError as error:
            why = str(error).removeprefix("Parameter type enforcement failed: ")
            raise refusal(self.program, why) from None
        self["log-level"] = self["log-level"] or (QUIET_LEVEL if self["quiet"] else DEFAULT_LEVEL)
        limit_log(self["log-level"])
        for name in self.all_paths():
            if self[name]:
                self[name] = os.path.abspath(self[name])

    def is_options_file(self, path: str) -> bool:
        """Return whether ``--config`` names a file with options."""
        return True

    def _from_file(self, arguments: Sequence[str]) -> list[str]:
        path = path_in(self, arguments)
        return arguments_from(path, self, arguments) if path and self.is_options_file(path) else []

    def check_pairs(self) -> None:
        """:raises UsageError: a flag and the one that reverses it are set."""
        for name in (each.name for each in self.all_declared() if each.reverse):
            if self[name] and self[f"no-{name}"]:
                raise UsageError(f"--{name} and --no-{name}: give one of them")

    def check_required(self) -> None:
        """
        Check that required options are present.

        :raises UsageError: some are not.
        """
        missing = [
            (name, required.what)
            for name, required in self._required().items()
            if not self[name] and not any(self[other] for other in required.unless)
        ]
        if len(missing) == 1:
            ((name, what),) = missing
            raise UsageError(f"--{name} is missing" + (f": {what}" if what else ""))
        if missing:
            listed = ", ".join(
                f"--{name}" + (f" ({what})" if what else "") for name, what in missing
            )
            raise UsageError(f"required options are missing: {listed}")

    @classmethod
    def _required(cls) -> dict[str, Required]:
        required: dict[str, Required] = {}
        for base in cls.__mro__:
            for name, each in base.__dict__.get("required", {}).items():
                required.setdefault(name, each)
        return required

    def certificates(self) -> dict[str, str]:
        """Return the configured paths of certificates and CAs by the names of their options."""
        return {
            name: self[name]
            for name in self.all_paths()
            if name.endswith(_CERTIFICATES) and self[name]
        }

    @classmethod
    def all_declared(cls) -> list[ProgramOption]:
        """Return the options of all base classes."""
        return [each for base in cls.__mro__ for each in base.__dict__.get("_declared", ())]

    @classmethod
    def all_paths(cls) -> list[str]:
        """Return the names of all options that are paths."""
        declared = [each.name for each in cls.all_declared() if each.is_path]
        return list(dict.fromkeys([*cls.paths, *declared]))


def _print_and_exit(text: str) -> NoReturn:
    """Print a text and exit with 0, also if its reader has ended, as with ``| head``."""
    try:
        print(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again at the exit, and would report the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


_NO_DEFAULT = re.compile(r"\s*\[default:\s*\]")
_OPTION = re.compile(r"(.{6}--\S+) +(\S.*)")
_OPTION_NAME = re.compile(r"\s+(?:-\w, )?--([\w-]+)")
_LEAST_COLUMNS = 50
_ENDLESS_COLUMNS = 100_000


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    return (
        int(columns)
        if columns.isdecimal() and columns.isascii() and 20 <= int(columns) <= 500
        else 80
    )


def _below(line: str, width: int) -> str:
    option = _OPTION.fullmatch(line)
    if option is None:
        return textwrap.fill(line, width)
    indent = " " * 10
    help_text = textwrap.fill(
        option[2],
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{option[1]}\n{help_text}"


def _naming(name: str, *rest: Any) -> list[Any]:
    if len(rest) < 4:
        return [name, *rest]
    coerce: Callable[[str], Any] = rest[3]

    @wraps(coerce)
    def named(text: str) -> Any:
        try:
            return coerce(text)
        except ValueError as error:
            raise ValueError(f"--{name}: {error}") from None

    return [name, *rest[:3], named]


def _sessions(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7 and 1 <= int(text) <= 100_000):
        raise ValueError(f"{text!r} is not a number from 1 to 100000")
    return int(text)


def seconds(text: str) -> float:
    """
    Coerce an option's value to seconds.

    :raises ValueError: it is not a number from 0 to 3600.
    """
    return _seconds_between(text, 0, 3600)


def _seconds_between(text: str, least: int, most: int) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        raise ValueError(f"{text!r} is no number of seconds from {least} to {most}")
    return seconds


class ReplaceableOptions(ProgramOptions):
    """Options of a program that a successor may replace."""

    group = "Hand-over"

    optParameters = [
        [
            "handover-seconds",
            None,
            HANDOVER_SECONDS,
            "Seconds that a successor that is not ready may do nothing.",
            partial(_seconds_between, least=1, most=3600),
        ],
    ]


class SessionOptions(ReplaceableOptions):
    """
    Options of a program that serves sessions.

    :cvar users_share: by default one user may have one session in so many.
    """

    group = "Sessions"
    descriptors_per_session = 2
    users_share = 4

    optParameters = [
        [
            "max-sessions",
            None,
            None,
            "Limit of concurrent sessions; default: as many as file descriptors allow, up to 10000.",
            _sessions,
        ],
        [
            "max-sessions-per-user",
            None,
            None,
            "Limit of one user's sessions; default: a part of --max-sessions.",
            _sessions,
        ],
        [
            "linger",
            None,
            LINGER_SECONDS,
            "Seconds that sessions may take to end in a process that a successor has replaced "
            "(SIGUSR2).",
            partial(_seconds_between, least=0, most=_WEEK_SECONDS),
        ],
    ]

    def session_limits(self) -> SessionLimits:
        """
        Return the limits for the present limit of descriptors.

        :raises ValueError: so many sessions do not fit.
        """
        try:
            return SessionLimits.fitting(
                self["max-sessions"],
                self["max-sessions-per-user"],
                per_session=self.descriptors_per_session,
                users_share=self.users_share,
            )
        except ValueError as problem:
            raise ValueError(f"--max-sessions: {problem}") from None


ALLOWED_ORIGIN = ProgramOption(
    "allowed-origin",
    "A site besides this server's own whose pages may send requests, such as https://HOST:PORT; may be "
    "repeated.",
    read_origin,
    several=True,
    convert=tuple,
)


class BrowserOptions(SessionOptions):
    """Options of a program that serves browsers."""

    group = "Sessions"
    more: Sequence[ProgramOption] = (ALLOWED_ORIGIN,)


def whole_seconds(text: str) -> int:
    """
    Coerce an option's value to whole seconds.

    :raises ValueError: it is not a whole number from 0 to 3600.
    """
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) > 3600:
        raise ValueError(f"{text!r} is no whole number of seconds from 0 to 3600")
    return int(text)


def days(text: str) -> int:
    """
    Coerce an option's value to days.

    :raises ValueError: it is not a whole number from 0 to 3650.
    """
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) > 3650:
        raise ValueError(f"{text!r} is no whole number of days from 0 to 3650")
    return int(text)


def size(text: str) -> int:
    """
    Coerce an option's value, such as ``64Mi``, to bytes.

    :raises ValueError: it is not a quantity from 0 to 1Pi.
    """
    try:
        amount = quantity.value(text)
    except ValueError:
        amount = -1
    if not 0 <= amount <= 1 << 50:
        raise ValueError(f"{text!r} is no size such as 64Mi")
    return amount


_PORTS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)


def port_range(text: str) -> range:
    """
    Coerce a range of ports, such as ``21000-21099``, which includes both.

    :raises ValueError: it is malformed, empty, or has a number that is no port.
    """
    parts = _PORTS.fullmatch(text)
    first, last = map(int, parts.groups()) if parts else (0, 0)
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"{text!r} is no range of ports from 1 to 65535, such as 21000-21099")
    return range(first, last + 1)


SPACE_PORT_RANGE = ProgramOption(
    "space-port-range",
    "Ports of 127.0.0.1 for the API servers of local Spaces: FIRST-LAST.",
    port_range,
    group="Spaces",
)

_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", re.ASCII)


def duration(text: str) -> float:
    """
    Coerce hours, minutes and seconds in Go's format, such as ``1h30m``, to seconds.

    :raises ValueError: it is malformed.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is no duration such as 8760h, 1h30m or 45s")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600.0 + minutes * 60.0 + seconds


def refusal(program: str, why: str) -> SystemExit:
    """Return the exception for ``postOptions`` or ``makeService``: Python prints it and exits with 1."""
    line = " ".join(why.split())
    tell_failure(line)
    return SystemExit(f"{program}: {line}; see twistd {program} --help")


DRAIN_SECONDS = ProgramOption(
    "drain-seconds", "Seconds that sessions may take to end at shutdown.", seconds
)
SHUTDOWN_DELAY_SECONDS = ProgramOption(
    "shutdown-delay-seconds",
    "Seconds to serve as not ready when stopping, before sessions drain.",
    seconds,
)
COMPATIBLE, STRICT = "compatible", "strict"


def console_verbs(text: str) -> str:
    """
    Check the value of ``--console-verbs``.

    :raises ValueError: it is neither :data:`COMPATIBLE` nor :data:`STRICT`.
    """
    if text not in (COMPATIBLE, STRICT):
        raise ValueError(f"{text!r} is neither {COMPATIBLE} nor {STRICT}")
    return text


CONSOLE_VERBS = ProgramOption(
    "console-verbs",
    "Whether create on machines/exec includes the verbs of machines/console (compatible) or not "
    "(strict).",
    console_verbs,
    default=COMPATIBLE,
    convert=STRICT.__eq__,
)


_MEGABYTE = 1 << 20


def _number(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8 and least <= int(text) <= most):
        raise ValueError(f"{text!r} is not a number from {least} to {most}")
    return int(text)


def _megabytes(text: str) -> int:
    return _number(text, 0, 1_000_000)


def _number_of_files(text: str) -> int:
    return _number(text, 1, 1000)


class AuditOptions(ProgramOptions):
    """Options of a program that records sessions."""

    group = "Audit log"

    optParameters = [
        [
            "audit-log",
            None,
            "-",
            "File for audit records, - for standard output, or /dev/null to keep none.",
        ],
        [
            "audit-log-maxsize",
            None,
            0,
            "Size in MB after which the file is renamed to FILE.1; 0 for no limit.",
            _megabytes,
        ],
        ["audit-log-maxbackup", None, 10, "Number of old files, from 1 to 1000.", _number_of_files],
    ]

    def audit(self, thread: Files | None = None) -> JSONLinesAudit:
        """Return the sink for session records; nothing is opened yet."""
        rotation = Rotation(self["audit-log-maxsize"] * _MEGABYTE, self["audit-log-maxbackup"])
        return JSONLinesAudit(self["audit-log"], rotation, thread)

"""
The command line of a program, with checks and help.

A configuration file has the names of options as keys; the command line takes precedence.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, ClassVar

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
from twisted_exec.program.options.declaration import ProgramOption, Required, options_of
from twisted_exec.program.options.help_text import (
    ENDLESS_COLUMNS,
    LEAST_COLUMNS,
    NO_DEFAULT,
    OPTION_NAME,
    description_below,
    print_and_exit,
    terminal_columns,
)
from twisted_exec.program.options.toml_file import CONFIG, arguments_from, path_in

_CERTIFICATES = (
    "cert-file",
    "ca-file",
    "client-certificate",
    "certificate-authority",
    "recorder-certificate",
)
_REMOVED = {
    f"option --{name} not recognized": f"--{name} was removed, because a program is replaced by a restart: delete it"
    for name in ("linger", "handover-seconds")
}
"""Instead of the refusals of options that release 0.2.0 had."""
LEVELS = ("debug", "info", "warn", "error")

DEFAULT_LEVEL, QUIET_LEVEL = "info", "warn"
_LEVEL_HELP = f"Least level of the log: {', '.join(LEVELS)}"
_QUIET_HELP = "Log only warnings and errors; --log-level takes precedence."


def read_level(text: str) -> str:
    """
    Check a level of the log.

    :raises ValueError: it is no level.
    """
    if text not in LEVELS:
        raise ValueError(f"{text!r} is no level: give {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    return text


def log_level(text: str) -> str:
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
        ["log-level", None, None, f"{_LEVEL_HELP}; default: {DEFAULT_LEVEL}.", log_level],
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
        print_and_exit(str(self))

    def opt_version(self) -> None:
        """Show the versions of this program and of Twisted."""
        name = self.program or "twisted-exec"
        print_and_exit(f"{name} {build()} (Twisted {twisted_version})")

    def parseArgs(self, *surplus: str) -> None:
        """:raises UsageError: there is an argument without an option."""
        if surplus:
            raise UsageError(f"{surplus[0]!r} belongs to no option")

    def getUsage(self, width: int | None = None) -> str:
        """
        Return the help text: options under headings, without empty defaults.

        :param width: in columns, by default ``$COLUMNS``, or 80.
        """
        width = width or terminal_columns()
        longest = max(map(len, self.longOpt))
        if width - longest >= LEAST_COLUMNS:
            text = NO_DEFAULT.sub("", super().getUsage(width))
        else:
            # Beside long option names Twisted leaves space for two words, so descriptions go below
            # them.
            lines = NO_DEFAULT.sub("", super().getUsage(ENDLESS_COLUMNS)).splitlines()
            text = "".join(f"{description_below(line, width)}\n" for line in lines)
        return self._under_headings(text)

    def _under_headings(self, text: str) -> str:
        options, blank, description = text.partition("\n\n")
        sections: dict[str, list[str]] = {}
        section: list[str] = []
        for line in options.splitlines()[1:]:
            if match := OPTION_NAME.match(line):
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
        try:
            super().parseOptions([*self._from_file(arguments), *arguments])
        except UsageError as error:
            why = str(error).removeprefix("Parameter type enforcement failed: ")
            raise refusal(self.program, _REMOVED.get(why, why)) from None
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

    def listening_at(self, place: str) -> list[str]:
        """
        Return the names of the options whose addresses have this place.

        :param place: a port, or the path of a UNIX socket.
        """
        same = re.compile(rf"(?<!\d){re.escape(place)}(?!\d)")
        return [
            each.name
            for each in self.all_declared()
            if each.listens and same.search(str(self[each.name]))
        ]

    @classmethod
    def all_declared(cls) -> list[ProgramOption]:
        """Return the options of all base classes."""
        return [each for base in cls.__mro__ for each in base.__dict__.get("_declared", ())]

    @classmethod
    def all_paths(cls) -> list[str]:
        """Return the names of all options that are paths."""
        declared = [each.name for each in cls.all_declared() if each.is_path]
        return list(dict.fromkeys([*cls.paths, *declared]))


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


def refusal(program: str, why: str) -> SystemExit:
    """Return the exception for ``postOptions`` or ``makeService``: Python prints it and exits with 1."""
    return SystemExit(f"{program}: {' '.join(why.split())}; see twistd {program} --help")

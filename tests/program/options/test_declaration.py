"""Tests for :mod:`twisted_exec.program.options.declaration`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required, settings_of
from twisted_exec.program.options.shared import CONSOLE_VERBS


@dataclass(frozen=True)
class Place:
    """A part of settings."""

    directory: str = field(
        default="", metadata={OPTION: ProgramOption("place-dir", "Where.", is_path=True)}
    )


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """Settings of several programs."""

    last: str = field(default="z", metadata={OPTION: ProgramOption("last", "The last.")})


@dataclass(frozen=True)
class DeclaredSettings(SharedSettings):
    """Settings with options of each sort."""

    name: str = field(
        metadata={OPTION: ProgramOption("name", "Its name.", required=Required("the name"))}
    )
    size: int = field(
        default=1, metadata={OPTION: ProgramOption("size", "Its size.", int, group="Size")}
    )
    first: str | None = field(default=None, metadata={OPTION: ProgramOption("first", "The first.")})
    is_slow: bool = field(default=False, metadata={OPTION: ProgramOption("slow", "Be slow.")})
    is_loud: bool = field(default=True, metadata={OPTION: ProgramOption("quietly", "No noise.")})
    is_open: bool = field(
        default=True, metadata={OPTION: ProgramOption("open", "Open.", reverse="Close.")}
    )
    types: tuple[str, ...] = field(
        default=("a", "b"),
        metadata={OPTION: ProgramOption("types", "Types.", lambda text: (*text,), default="ab")},
    )
    numbers: tuple[int, ...] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "number",
                "Numbers.",
                lambda text: [int(each) for each in text.split(",")],
                several=True,
                convert=tuple,
            )
        },
    )
    is_strict: bool = field(default=False, metadata={OPTION: CONSOLE_VERBS})
    place: Place = field(default=Place(), metadata={OPTION: Place})
    made: str = ""


class DeclaredOptions(ProgramOptions):
    """Options that come from settings, and one that does not."""

    program = "exec-x"
    group = "Main"
    settings_class = DeclaredSettings
    more = (ProgramOption("beside", "In no field.", default="c"),)

    def postOptions(self) -> None:
        self.check_pairs()
        self.check_required()


class DeclaredOptionsTests(SynchronousTestCase):
    """Options that are declared on the fields that they set."""

    def settings(self, *words: str, **more: object) -> DeclaredSettings:
        options = DeclaredOptions()
        options.parseOptions(words)
        return settings_of(DeclaredSettings, options, **more)

    def test_defaults(self) -> None:
        """Without options fields have their defaults; a default in the form of text is read, too."""
        self.assertEqual(self.settings("--name=n"), DeclaredSettings("n"))

    def test_values(self) -> None:
        """Each sort of option fills its field."""
        words = "--size=7 --first=f --slow --quietly --no-open --types=xyz --number=1,2 --number=3"
        more = "--console-verbs=strict --last=l --place-dir=here"
        self.assertEqual(
            self.settings("--name=n", *words.split(), *more.split(), made="m"),
            DeclaredSettings(
                name="n",
                size=7,
                first="f",
                is_slow=True,
                is_loud=False,
                is_open=False,
                types=("x", "y", "z"),
                numbers=(1, 2, 3),
                is_strict=True,
                place=Place(os.path.abspath("here")),
                made="m",
                last="l",
            ),
        )

    def test_refused(self) -> None:
        """Messages name the option."""
        for words, message in (
            ([], "--name is missing: the name"),
            (["--name=n", "--size=x"], "--size: invalid literal"),
            (["--name=n", "--number=x"], "--number: invalid literal"),
            (["--name=n", "--open", "--no-open"], "--open and --no-open: give one of them"),
        ):
            with self.assertRaises(SystemExit) as caught:
                self.settings(*words)
            self.assertIn(f"exec-x: {message}", str(caught.exception.code))

    def test_help(self) -> None:
        """The help has the headings of the declaration."""
        text = DeclaredOptions().getUsage(100)
        names = re.findall(r"^(\w+):$|--([\w-]+)", text.partition("Program:")[0], re.MULTILINE)
        self.assertEqual(
            [heading or name for heading, name in names],
            [
                *("Size", "size"),
                *("Main", "beside", "console-verbs", "first", "last", "name", "no-open", "number"),
                *("open", "place-dir", "quietly", "slow", "types"),
            ],
        )

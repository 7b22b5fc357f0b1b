from __future__ import annotations

import dataclasses
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.copies import replace


@dataclass(frozen=True)
class Plain:
    name: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Derived(Plain):
    size: int = 0

    @cached_property
    def label(self) -> str:
        return f"{self.name}/{self.size}"


@dataclass(frozen=True)
class Counted(Plain):
    most: ClassVar[int] = 3


@dataclass
class Checked:
    name: str
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)


@dataclass
class Fresh:
    name: str
    seen: list[str] = field(default_factory=list, init=False)


@dataclass
class Converted:
    text: InitVar[str]
    size: int = 0

    def __post_init__(self, text: str) -> None:
        self.size = len(text)


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    size: int = 0


class ReplaceTests(SynchronousTestCase):
    def test_as_the_standard_library(self) -> None:
        for original, changes in [
            (Plain("a", ("x",)), {"name": "b"}),
            (Plain("a", ("x",)), {}),
            (Derived("a", size=2), {"size": 3, "tags": ("y",)}),
            (Counted("a"), {"name": "b"}),
            (Checked("a"), {"name": "abc"}),
            (Converted("a"), {"text": "abc"}),
            (Slotted("a"), {"size": 1}),
        ]:
            value: Any = original
            copy = replace(value, **changes)
            self.assertEqual(copy, dataclasses.replace(value, **changes))
            self.assertIs(type(copy), type(value))
            self.assertIsNot(copy, value)

    def test_the_original_is_left(self) -> None:
        original = Plain("a")
        replace(original, name="b")
        self.assertEqual(original, Plain("a"))

    def test_a_cached_property_is_not_copied(self) -> None:
        original = Derived("a")
        self.assertEqual(original.label, "a/0")
        self.assertEqual(replace(original, size=1).label, "a/1")

    def test_what_the_class_makes_is_not_copied(self) -> None:
        original = Fresh("a")
        self.assertIsNot(replace(original, name="b").seen, original.seen)

    def test_names_that_are_no_fields(self) -> None:
        for value in (Plain("a"), Derived("a"), Checked("a"), Slotted("a")):
            wrong: Any = {"colour": "red"}
            self.assertRaises(TypeError, replace, value, **wrong)

    def test_no_dataclass(self) -> None:
        nothing: Any
        for nothing in ("text", Plain):
            self.assertRaises(TypeError, replace, nothing, name="b")

"""Tests for :mod:`twisted_exec.spacemanager.spaces.naming`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import names, spaces
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.spaces.naming import (
    LONGEST,
    discovered,
    is_discovered,
    misplaced,
    name_for,
    physical_of,
    provider_of,
    viewpoints_of,
)

TEXT = st.text(min_size=1, max_size=80)


def space(name: str = "one", namespace: str = "spaceprovider-p", **more: Any) -> dict[str, Any]:
    spec = {"SpaceProviderDescName": "p", **more.pop("spec", {})}
    return {"metadata": {"name": name, "namespace": namespace, **more}, "spec": spec}


class NamingTests(SynchronousTestCase):
    """Names of objects and of what they stand for."""

    @given(name=TEXT, parent=st.one_of(st.just(""), TEXT), is_free=st.booleans())
    def test_both_ways(self, name: str, parent: str, is_free: bool) -> None:
        """Whatever a provider calls it, an object of a good name leads back to it."""
        physical = Physical(name, parent)
        told = name_for(physical, is_free)
        self.assertEqual(names.dns_subdomain(told), [])
        self.assertLessEqual(len(told), LONGEST)
        made = discovered(physical, "p", told)
        self.assertEqual(physical_of(made), physical)
        self.assertTrue(is_discovered(made))
        self.assertIsNone(misplaced(made))
        self.assertEqual(name_for(physical, is_free), told)

    def test_names(self) -> None:
        """Its own where that will do; with its place before it; or what is left of both."""
        for physical, told in {
            Physical("one"): "one",
            Physical("one", "root:org"): "root-org.one",
            Physical("One"): "one-",
            Physical("x" * 70): "x" * 54 + "-",
            Physical("_"): "space-",
        }.items():
            self.assertTrue(name_for(physical).startswith(told), name_for(physical))
        self.assertNotEqual(name_for(Physical("One")), name_for(Physical("oNe")))
        self.assertNotEqual(name_for(Physical("one")), name_for(Physical("one"), False))

    def test_recorded_first(self) -> None:
        """What was asked for counts more than what an annotation says later."""
        made = space(annotations={spaces.PHYSICAL_NAME: "other", spaces.PATH: "root"})
        self.assertEqual(physical_of(made), Physical("other", "root"))
        made["status"] = {"physicalSpace": {"name": "one"}}
        self.assertEqual(physical_of(made), Physical("one"))

    def test_defaults(self) -> None:
        """What is not said is managed, and from everywhere."""
        self.assertEqual(viewpoints_of(space()), spaces.VIEWPOINTS)
        self.assertEqual(viewpoints_of(space(spec={"accessscopetype": "External"})), ("External",))
        self.assertEqual(provider_of(space()), "p")
        self.assertEqual(provider_of(space(spec={"Type": "imported"})), "")

    def test_misplaced(self) -> None:
        """A Space has a provider, and lives with it."""
        self.assertEqual((misplaced(space(namespace="x")) or ("",))[0], "WrongNamespace")
        none = space(spec={"SpaceProviderDescName": ""})
        self.assertEqual((misplaced(none) or ("",))[0], "NoProvider")

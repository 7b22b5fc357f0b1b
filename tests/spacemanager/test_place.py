"""Tests for :mod:`twisted_exec.spacemanager.place`."""

from __future__ import annotations

import os
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import alsoProvides

from tests.spacemanager.test_registry import ProvidersCase
from twisted_exec.api.spaces import PROVIDER_REACHABLE, PROVIDERS, SYNCED
from twisted_exec.spacemanager.interfaces import (
    IHostLocal,
    ISpaceProvider,
    ProviderContext,
    ProviderSpec,
)
from twisted_exec.spacemanager.place import is_same, location_of, place_of
from twisted_exec.testing.space_provider import MemoryProvider
from twisted_exec.tls.private_directories import private_directory

HERE, THERE = "1-1 one.example:/var/lib/a", "2-2 two.example:/var/lib/a"


class PlaceTests(SynchronousTestCase):
    """The identity of a state directory."""

    def setUp(self) -> None:
        self.directory = private_directory(os.path.abspath(self.mktemp()))

    def test_again(self) -> None:
        """The place of a directory is stable, and contains its path."""
        first = place_of(self.directory)
        self.assertEqual(place_of(self.directory), first)
        self.assertTrue(location_of(first).endswith(f":{self.directory}"))
        self.assertEqual(os.stat(os.path.join(self.directory, "place")).st_mode & 0o777, 0o600)

    def test_moved(self) -> None:
        """A moved directory stays the same place; a new directory at the old path does not."""
        first = place_of(self.directory)
        os.rename(self.directory, f"{self.directory}-moved")
        self.assertTrue(is_same(place_of(f"{self.directory}-moved"), first))
        self.assertFalse(is_same(place_of(private_directory(self.directory)), first))


class KeptHereTests(ProvidersCase):
    """A provider whose physical spaces are on the manager's host."""

    def setUp(self) -> None:
        super().setUp()
        self.hub.around = replace(self.hub.around, place=HERE)
        self.hub.makers = dict.fromkeys(self.hub.makers, self.make)
        self.providers = self.hub.providers()

    def make(self, spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
        made: MemoryProvider = self.hub.world(spec.name).provider()
        alsoProvides(made, IHostLocal)
        self.hub.made.append((spec, made))
        return made

    def test_first(self) -> None:
        """The first manager writes its place to the provider's status."""
        self.hub.desc("here")
        self.start()
        status = self.hub.got("here")["status"]
        self.assertEqual((status["place"], status["Phase"]), (HERE, "Ready"))

    def test_same(self) -> None:
        """A manager with the same state directory continues, even if the directory has moved."""
        self.hub.desc("here")
        self.hub.got("here")["status"] = {"place": "1-1 moved.example:/b"}
        self.start()
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")

    def test_elsewhere(self) -> None:
        """
        A provider whose spaces are on another host is not contacted, until its status.place is
        cleared.
        """
        self.hub.desc("here")
        self.hub.got("here")["status"] = {"place": THERE}
        self.start()
        self.assertIsNone(self.view("here").provider)
        self.assertTrue(self.hub.made[0][1].closed)
        self.assertEqual(self.hub.condition("here", SYNCED), ("False", "KeptElsewhere"))
        self.assertEqual(self.hub.condition("here", PROVIDER_REACHABLE)[0], "Unknown")
        self.assertIn("are at two.example:/var/lib/a", self.hub.message("here", SYNCED))
        self.assertIn(("Warning", "KeptElsewhere", "here"), self.hub.events())
        given_up = {"status": {"place": None}}
        self.hub.client.patch(PROVIDERS, "here", given_up, subresource="status")
        self.hub.pass_time(31)
        status = self.hub.got("here")["status"]
        self.assertEqual((status["place"], status["Phase"]), (HERE, "Ready"))

"""
Tests for :mod:`twisted_exec.api.kinds.ipam`.
"""

from __future__ import annotations

from tests.api.kinds.support import KindTestCase
from tests.api.kinds.test_networks import DOMAIN
from twisted_exec.api.kinds import ipam


class PrefixTests(KindTestCase):
    """Prefixes."""

    kind = ipam.prefixes(DOMAIN)

    def test_family(self) -> None:
        """``ipFamily`` follows from the prefix."""
        made = self.create(spec={"prefix": "10.0.0.0/8"})
        self.assertEqual(made["spec"]["ipFamily"], "IPv4")
        self.assertEqual(made["status"], {"phase": "Pending"})

    def test_bad(self) -> None:
        """An invalid spec is refused with the path of the field."""
        parent = {"parentRef": {"name": "root"}, "ipFamily": "IPv4"}
        for spec, path in (
            ({}, "spec.ipFamily"),
            ({"ipFamily": "IPv4"}, "spec.prefix"),
            ({"ipFamily": "IPv4", "prefix": "10.0.0.1/8"}, "spec.prefix"),
            ({"ipFamily": "IPv6", "prefix": "10.0.0.0/8"}, "spec.prefix"),
            (
                {"ipFamily": "IPv4", "prefix": "10.0.0.0/8", "prefixLength": 8},
                "spec.prefixLength",
            ),
            (parent, "spec"),
            ({**parent, "prefixLength": 33}, "spec.prefixLength"),
            ({**parent, "prefix": "10.0.0.0/8", "prefixLength": 9}, "spec.prefixLength"),
        ):
            (told,) = self.refused(spec=spec)
            self.assertTrue(told.startswith(f"{path}: "), (spec, told))

    def test_allocated_once(self) -> None:
        """An allocated prefix can be set once and is immutable afterwards."""
        old = self.create(spec={"parentSelector": {}, "ipFamily": "IPv4", "prefixLength": 8})
        got = {**old["spec"], "prefix": "10.0.0.0/8", "parentRef": {"name": "root"}}
        new = self.update(old, spec=got)
        self.assertEqual(new["spec"]["prefix"], "10.0.0.0/8")
        (told,) = self.update_refused(new, spec={**got, "prefix": "11.0.0.0/8"})
        self.assertEqual(told, "spec: Forbidden: field is immutable")

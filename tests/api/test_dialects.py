"""
Tests for :mod:`twisted_exec.api.dialects`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import (
    DEFAULT,
    DIALECTS,
    IRONCORE,
    ONMETAL,
    SPHERIC,
    SPHERIC_MACHINES,
    Owner,
    by_name,
    missing_class,
    one_per_group,
    owner_of,
)


class NamesTests(SynchronousTestCase):
    """Names as the systems themselves have them."""

    def test_paths(self) -> None:
        """A poollet's path has no version; group and plural are the dialect's."""
        self.assertEqual(
            [dialect.poollet_path("lab", "vm-1") for dialect in DIALECTS],
            [
                "/apis/compute.ironcore.dev/namespaces/lab/machines/vm-1/exec",
                "/apis/compute.api.onmetal.de/namespaces/lab/machines/vm-1/exec",
                "/apis/core.spheric.cloud/namespaces/lab/instances/vm-1/exec",
                "/apis/core.spheric.cloud/namespaces/lab/machines/vm-1/exec",
            ],
        )

    def test_missing_class(self) -> None:
        """The message names classes that exist, at most ten."""
        missing = 'class "smal" does not exist'
        self.assertEqual(missing_class("smal", None), missing)
        self.assertEqual(missing_class("smal", ()), f"{missing}; there are: none")
        self.assertEqual(missing_class("smal", "ba"), f"{missing}; there are: a, b")
        many = missing_class("smal", [f"c{number:02}" for number in range(20)])
        self.assertTrue(many.startswith(f"{missing}; there are: c00, c01, c02,"), many)
        self.assertTrue(many.endswith(", c09, ..."), many)

    def test_identities(self) -> None:
        """A poollet is known by its certificate's common name and organisation."""
        self.assertEqual(
            [(each.pool_identity("p"), each.pool_identity_group) for each in DIALECTS],
            [
                (f"{group}:system:{pool}:p", f"{group}:system:{pool}s")
                for group, pool in (
                    ("compute.ironcore.dev", "machinepool"),
                    ("compute.api.onmetal.de", "machinepool"),
                    ("core.spheric.cloud", "fleet"),
                    ("core.spheric.cloud", "machinepool"),
                )
            ],
        )

    def test_labels(self) -> None:
        """A poollet's labels and annotations have the domain of its dialect."""
        self.assertEqual(
            [(each.uid_label, each.runtime_generation_annotation) for each in DIALECTS],
            [
                (
                    "machinepoollet.ironcore.dev/machine-uid",
                    "machinepoollet.ironcore.dev/irimachine-generation",
                ),
                (
                    "machinepoollet.api.onmetal.de/machine-uid",
                    "machinepoollet.api.onmetal.de/orimachine-generation",
                ),
                (
                    "spherelet.spheric.cloud/instance-uid",
                    "spherelet.spheric.cloud/iriinstance-generation",
                ),
                (
                    "machinepoollet.spheric.cloud/machine-uid",
                    "machinepoollet.spheric.cloud/irimachine-generation",
                ),
            ],
        )

    def test_finalizers(self) -> None:
        """Finalizers are named after the poollet that sets them."""
        self.assertEqual(
            [each.finalizer for each in DIALECTS[:3]],
            [
                "machinepoollet.ironcore.dev/machine",
                "machinepoollet.api.onmetal.de/machine",
                "spherelet.spheric.cloud/instance",
            ],
        )

    def test_together(self) -> None:
        """All dialects can be served together: their names, users, labels and finalizers differ."""
        for names in (
            [each.name for each in DIALECTS],
            [each.workload.qualified for each in DIALECTS],
            [each.pool.qualified for each in DIALECTS],
            [each.workload_class.qualified for each in DIALECTS],
            [each.pool_identity_prefix for each in DIALECTS],
            [each.pool_identity_group for each in DIALECTS],
            [each.proxy_role for each in DIALECTS],
            [each.uid_label for each in DIALECTS],
            [each.finalizer for each in DIALECTS],
        ):
            self.assertEqual(len(set(names)), len(DIALECTS), names)


class ReadingTests(SynchronousTestCase):
    """Fields of a workload are read by its dialect's keys."""

    def test_bound(self) -> None:
        """Pool and class are read where the dialect keeps them."""
        instance = {"spec": {"fleetRef": {"name": "f"}, "instanceTypeRef": {"name": "small"}}}
        self.assertEqual(SPHERIC.pool_name(instance), "f")
        self.assertEqual(SPHERIC.class_name(instance), "small")

    def test_not_bound(self) -> None:
        """A missing or null reference is an empty name."""
        for machine in ({}, {"spec": {}}, {"spec": {"machinePoolRef": None}}):
            self.assertEqual(IRONCORE.pool_name(machine), "")

    def test_pool_of(self) -> None:
        """``pool_of`` recognizes only poollets of its own dialect."""
        self.assertEqual(ONMETAL.pool_of(ONMETAL.pool_identity("p")), "p")
        self.assertIsNone(ONMETAL.pool_of(IRONCORE.pool_identity("p")))
        self.assertIsNone(ONMETAL.pool_of(ONMETAL.pool_identity("")))


class ByNameTests(SynchronousTestCase):
    """Tests for :func:`by_name` and :func:`one_per_group`."""

    def test_each(self) -> None:
        """Each is found by its name."""
        self.assertEqual([by_name(each.name) for each in DIALECTS], list(DIALECTS))

    def test_unknown(self) -> None:
        """An unknown dialect is refused, and the message lists the known ones."""
        with self.assertRaises(ValueError) as caught:
            by_name("Ironcore")
        self.assertEqual(
            str(caught.exception),
            "there is no dialect 'Ironcore': choose one of ironcore, onmetal, spheric, "
            "spheric-machines",
        )

    def test_none_given(self) -> None:
        """Without an option, the default dialect is used."""
        self.assertEqual(one_per_group([]), (DEFAULT,))

    def test_several(self) -> None:
        """Several stay in the order given."""
        self.assertEqual(one_per_group(["spheric", "ironcore"]), (SPHERIC, IRONCORE))

    def test_twice(self) -> None:
        """A dialect given twice is refused."""
        with self.assertRaises(ValueError) as caught:
            one_per_group(["onmetal", "onmetal"])
        self.assertEqual(str(caught.exception), "dialect 'onmetal' is given twice")


class OwnerTests(SynchronousTestCase):
    """Tests for :func:`owner_of`."""

    def test_any_dialect(self) -> None:
        """Labels of every dialect are understood."""
        for dialect in DIALECTS:
            labels = {
                dialect.uid_label: "u",
                dialect.namespace_label: "lab",
                dialect.name_label: "vm-1",
                "app": "x",
            }
            owner = Owner("u", "lab", "vm-1", dialect.workload.qualified)
            self.assertEqual(owner_of(labels), owner)

    def test_nobody(self) -> None:
        """A machine without a poollet's labels has no owner."""
        self.assertEqual(owner_of({"app": "x"}), Owner())

    def test_spheric_as_written(self) -> None:
        """spheric's document and its programs label differently."""
        self.assertNotEqual(SPHERIC.uid_label, SPHERIC_MACHINES.uid_label)


class IroncoreTests(SynchronousTestCase):
    """The names of ironcore."""

    def test_paths(self) -> None:
        """A poollet's path has no version and is encoded."""
        self.assertEqual(
            IRONCORE.poollet_path("ns", "a/b"),
            "/apis/compute.ironcore.dev/namespaces/ns/machines/a%2Fb/exec",
        )

    def test_identities(self) -> None:
        """A pool's identity can be converted to a user name and back."""
        user = IRONCORE.pool_identity("p")
        self.assertEqual(user, "compute.ironcore.dev:system:machinepool:p")
        self.assertEqual(IRONCORE.pool_of(user), "p")
        self.assertIsNone(IRONCORE.pool_of("jane"))
        self.assertIsNone(IRONCORE.pool_of(IRONCORE.pool_identity("")))

    def test_labels(self) -> None:
        """Labels and annotations that a poollet passes to its runtime."""
        self.assertEqual(IRONCORE.uid_label, "machinepoollet.ironcore.dev/machine-uid")
        self.assertEqual(
            IRONCORE.runtime_generation_annotation,
            "machinepoollet.ironcore.dev/irimachine-generation",
        )

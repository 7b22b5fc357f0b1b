"""Tests for :mod:`twisted_exec.nodeserver.options`."""

from __future__ import annotations

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.nodeserver.options import NodeOptions


class NodeOptionsTests(SynchronousTestCase):
    """Options from the command line and the environment."""

    def read(self, *arguments: str, **environ: str) -> NodeOptions:
        options = NodeOptions()
        options.environ = environ
        for argument in arguments:
            key, _, value = argument.partition("=")
            options[key] = value or True
        options.postOptions()
        return options

    def refused(self, *arguments: str, **environ: str) -> str:
        with self.assertRaises(UsageError) as caught:
            self.read(*arguments, **environ)
        return str(caught.exception)

    def test_kosmos(self) -> None:
        """Kosmos's variables count where no option does."""
        environ = {"LEAF_NODE_IP": "10.9.9.9", "PREFERRED-ADDRESS-TYPE": "InternalIP"}
        published = self.read(**environ).published(10250)
        self.assertEqual((published.own, published.port), ([("InternalIP", "10.9.9.9")], 10250))
        published = self.read("node-address=10.1.1.1", **environ).published(10250)
        self.assertEqual(published.own, [("InternalIP", "10.1.1.1")])

    def test_defaults(self) -> None:
        """Without more, an InternalDNS and what a kube-apiserver prefers."""
        published = self.read("node-address=10.9.9.9").published(10250)
        self.assertEqual(published.own[0][0], "InternalDNS")
        self.assertEqual(
            (published.preferred, published.address_types), (ADDRESS_TYPES, ADDRESS_TYPES)
        )
        self.assertEqual(
            (published.upkeep, published.ready_when, published.features), ("full", "leaf", [])
        )

    def test_no_address(self) -> None:
        """An empty address is not published: the message names the missing option."""
        self.assertIn("--node-address (or LEAF_NODE_IP) is missing", self.refused())
        self.assertIn("LEAF_NODE_IP", self.refused(LEAF_NODE_IP=" "))
        self.assertEqual(self.read("upkeep=none").own_addresses(), [])

    def test_several(self) -> None:
        """One address of each family, and another port than ours."""
        options = self.read("node-address=10.9.9.9,fd00::9")
        options["node-port"] = 443
        published = options.published(10250)
        self.assertEqual([each[1] for each in published.own], ["10.9.9.9", "fd00::9"])
        self.assertEqual(published.port, 443)

    def test_websockets(self) -> None:
        """Declared only when asked for."""
        options = self.read("node-address=10.9.9.9", "declare-websockets")
        self.assertEqual(options.published(1).features, ["ExtendWebSocketsToKubelet"])

    def test_senseless(self) -> None:
        """Invalid values are refused in a line that names the option."""
        for argument, message in (
            ("node-address=a b", "is no host name or IP address"),
            ("node-address=0.0.0.0", "is no address that could be dialled"),
            (
                "preferred-address-type=internalDNS",
                "--preferred-address-type: internalDNS is not an address type",
            ),
            ("preferred-address-type=InternalDNS,Hostname", "must be a single address type"),
            ("kubelet-preferred-address-types=,", "is empty"),
            ("leaf-address-types=X", "--leaf-address-types: X is not an address type"),
            ("upkeep=some", "--upkeep is one of full, endpoints, none"),
            ("node-ready-when=never", "--node-ready-when is one of"),
            ("namespace=a/b", "--namespace"),
            ("lease=A", "--lease"),
        ):
            self.assertIn(message, self.refused("node-address=10.9.9.9", argument))
        message = self.refused("node-address=here.example", "preferred-address-type=InternalIP")
        self.assertIn("is no IP address", message)

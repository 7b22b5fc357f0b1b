"""
Tests for :mod:`twisted_exec.iri.revisions`, and for the translations behind it.

The bytes are written out by hand here, after the tables of each revision: a translation that
agrees only with our own ``.proto`` files would prove nothing.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as some
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import BadRequest, NotImplementedByBackend
from twisted_exec.iri.image_disk import IMAGE_DISK, image_disk
from twisted_exec.iri.onmetal import ID_ATTRIBUTE, UNCOUNTED
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import spheric_pb2
from twisted_exec.iri.protos.meta_pb2 import ObjectMetadata
from twisted_exec.iri.revision import attribute_of
from twisted_exec.iri.revisions import (
    IRONCORE,
    ONMETAL,
    ONMETAL_01,
    REVISIONS,
    SPHERIC,
    revision,
)
from twisted_exec.iri.spheric import CIDRS_ATTRIBUTE, RENAMED, SUBNET_ATTRIBUTES

OLDER = (ONMETAL, SPHERIC)


def field(number: int, value: bytes | int) -> bytes:
    """Encode a field of a message (numbers below 16, and lengths below 128)."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def create(spec: pb.MachineSpec) -> pb.CreateMachineRequest:
    return pb.CreateMachineRequest(machine=pb.Machine(spec=spec))


def spec(**fields: Any) -> pb.MachineSpec:
    """Return a spec; ``class_`` sets its field ``class``."""
    made = pb.MachineSpec(**{name: told for name, told in fields.items() if name != "class_"})
    setattr(made, "class", fields.get("class_", ""))
    return made


class NameTests(SynchronousTestCase):
    """Names, method paths and methods of the revisions."""

    def test_names(self) -> None:
        """
        ``revision`` returns each revision by name; an unknown name raises with the known ones.
        """
        for name, found in REVISIONS.items():
            self.assertIs(revision(name), found)
        with self.assertRaises(ValueError) as caught:
            revision("irnocore")
        self.assertEqual(
            str(caught.exception),
            "'irnocore' is no revision of the machine runtime interface; "
            "there are ironcore, onmetal, onmetal-0.1, spheric",
        )

    def test_paths(self) -> None:
        """The ironcore and onmetal revisions share their method paths; spheric has its own."""
        for one in (IRONCORE, ONMETAL, ONMETAL_01):
            self.assertEqual(one.call("exec").path, "/machine.v1alpha1.MachineRuntime/Exec")
        self.assertEqual(
            SPHERIC.call("list_machines").path, "/runtime.v1alpha1.RuntimeService/ListInstances"
        )

    def test_attributes(self) -> None:
        """Method names become snake_case attributes; older revisions lack two of them."""
        self.assertEqual(attribute_of("UpdateMachinePower"), "update_machine_power")
        for one in (ONMETAL, ONMETAL_01, SPHERIC):
            self.assertEqual(set(IRONCORE.calls) - set(one.calls), {"list_events", "update_volume"})

    def test_no_such_method(self) -> None:
        """
        A method that a revision lacks raises NotImplementedByBackend with the revision's name.
        """
        with self.assertRaises(NotImplementedByBackend) as caught:
            ONMETAL.call("list_events")
        self.assertIn("revision onmetal", caught.exception.message)


class BytesTests(SynchronousTestCase):
    """Encoded messages, byte for byte."""

    def test_spec(self) -> None:
        """Each revision has its own field numbers in a machine's spec."""
        wanted = create(spec(power=pb.POWER_OFF, class_="c", ignition_data=b"i"))
        for one, numbers in (
            (IRONCORE, (1, 2, 3)),
            (ONMETAL, (1, 3, 4)),
            (SPHERIC, (1, 3, 6)),
        ):
            power, class_, ignition = numbers
            inner = field(power, 1) + field(class_, b"c") + field(ignition, b"i")
            expected = field(1, field(2, inner))
            call = one.call("create_machine")
            self.assertEqual(call.encode_request(wanted), expected, one.name)
            self.assertEqual(call.decode_request(expected), wanted, one.name)

    def test_disks(self) -> None:
        """
        Volumes have another field number in each revision; a local disk is field 4 of a volume.
        """
        disk = pb.Volume(name="d", device="oda", local_disk=pb.LocalDisk(size_bytes=5))
        wanted = create(spec(volumes=[disk]))
        told = field(1, b"d") + field(2, b"oda") + field(4, field(1, 5))
        for one, number in ((IRONCORE, 4), (ONMETAL, 5), (SPHERIC, 7)):
            expected = field(1, field(2, field(number, told)))
            call = one.call("create_machine")
            self.assertEqual(call.encode_request(wanted), expected, one.name)
            self.assertEqual(call.decode_request(expected), wanted, one.name)

    def test_image(self) -> None:
        """Older specs hold the image in field 2; the current one holds it in a disk."""
        wanted = create(spec(volumes=[image_disk("img")]))
        for one in OLDER:
            expected = field(1, field(2, field(2, field(1, b"img"))))
            call = one.call("create_machine")
            self.assertEqual(call.encode_request(wanted), expected, one.name)
            self.assertEqual(call.decode_request(expected), wanted, one.name)

    def test_exec(self) -> None:
        """Exec is the same in all revisions."""
        for one in REVISIONS.values():
            call = one.call("exec")
            self.assertEqual(call.encode_request(pb.ExecRequest(machine_id="m")), b"\x0a\x01m")
            self.assertEqual(call.decode_response(b"\x0a\x01u"), pb.ExecResponse(url="u"))

    def test_capabilities(self) -> None:
        """onmetal reports CPUs in thousandths and memory in bytes."""
        told = field(1, b"c") + field(2, b"\x08\xd0\x0f" + field(2, 7))  # 2000, a varint
        expected = field(1, field(1, told) + field(2, 9))
        answer = pb.StatusResponse()
        one = answer.machine_class_status.add(quantity=9)
        one.machine_class.name = "c"
        one.machine_class.capabilities.resources.update({"cpu": 2, "memory": 7})
        call = ONMETAL.call("status")
        self.assertEqual(call.encode_response(answer), expected)
        self.assertEqual(call.decode_response(expected), answer)

    def test_part_of_a_cpu(self) -> None:
        """A fraction of a CPU is rounded up, as in a Kubernetes quantity."""
        told = field(1, b"c") + field(2, b"\x08\xdc\x0b")  # 1500
        answer: Any = ONMETAL.call("status").decode_response(field(1, field(1, told)))
        resources = answer.machine_class_status[0].machine_class.capabilities.resources
        self.assertEqual(dict(resources), {"cpu": 2, "memory": 0})

    def test_quantities(self) -> None:
        """spheric reports how many instances of a type fit, but no resources of the type."""
        told = field(3, field(1, b"t") + field(2, 4))
        answer = pb.StatusResponse()
        answer.machine_class_status.add(quantity=4).machine_class.name = "t"
        call = SPHERIC.call("status")
        self.assertEqual(call.encode_response(answer), field(1, told) + field(2, told))
        self.assertEqual(call.decode_response(field(1, told) + field(2, told)), answer)

    def test_subnet(self) -> None:
        """A spheric network interface nests its subnet; our message holds it in attributes."""
        subnet = field(1, b"net") + field(2, b"n-uid") + field(3, b"sub") + field(4, b"s-uid")
        nic = field(1, b"eth") + field(2, subnet) + field(3, b"::1") + field(4, b"a/1")
        expected = field(1, field(2, field(8, nic + field(4, b"b/2"))))
        inside = pb.NetworkInterface(name="eth", network_id="n-uid", ips=["::1"])
        inside.attributes.update(
            {"network-name": "net", "subnet-name": "sub", "subnet-uid": "s-uid"}
        )
        inside.attributes[CIDRS_ATTRIBUTE] = "a/1,b/2"
        wanted = create(spec(network_interfaces=[inside]))
        call = SPHERIC.call("create_machine")
        self.assertEqual(call.decode_request(expected), wanted)
        self.assertEqual(call.encode_request(wanted), expected)

    def test_nonsense(self) -> None:
        """Undecodable bytes raise DecodeError in every revision."""
        for one in REVISIONS.values():
            for call in one.calls.values():
                for read in (call.decode_request, call.decode_response):
                    with self.assertRaises(DecodeError):
                        read(b"\xff\xff\xff")

    def test_wrong_revision(self) -> None:
        """A message of another revision often fails to decode."""
        answer = pb.ListMachinesResponse(
            machines=[pb.Machine(spec=spec(class_="c", ignition_data=b"\xff"))]
        )
        raw = ONMETAL.call("list_machines").encode_response(answer)
        with self.assertRaises(DecodeError):
            IRONCORE.call("list_machines").decode_response(raw)


class StateTests(SynchronousTestCase):
    """States of machines."""

    def told(self, one: Any, state: int) -> int:
        """Return a machine state as a client of a revision decodes it."""
        answer = pb.ListMachinesResponse(machines=[pb.Machine(status=pb.MachineStatus())])
        answer.machines[0].status.state = state  # type: ignore[assignment]
        call = one.call("list_machines")
        back = call.decode_response(call.encode_response(answer))
        return int(back.machines[0].status.state)

    def test_known(self) -> None:
        """ironcore has six states."""
        states = pb.MachineState.values()
        self.assertEqual([self.told(IRONCORE, state) for state in states], states)

    def test_four(self) -> None:
        """
        onmetal and spheric have four states: stopped becomes suspended, terminating becomes
        terminated.
        """
        for one in (ONMETAL, ONMETAL_01, SPHERIC):
            self.assertEqual(
                [self.told(one, state) for state in pb.MachineState.values()],
                [
                    pb.MACHINE_PENDING,
                    pb.MACHINE_RUNNING,
                    pb.MACHINE_SUSPENDED,
                    pb.MACHINE_TERMINATED,
                    pb.MACHINE_TERMINATED,
                    pb.MACHINE_SUSPENDED,
                ],
            )


class LossTests(SynchronousTestCase):
    """Fields that an older revision lacks."""

    def refusal(self, one: Any, attribute: str, request: Any) -> str:
        with self.assertRaises(NotImplementedByBackend) as caught:
            one.call(attribute).encode_request(request)
        self.assertIn(f"(revision {one.name})", caught.exception.message)
        return caught.exception.message.partition(" cannot tell ")[2]

    def test_hostname(self) -> None:
        """Older revisions refuse a machine with a guest hostname."""
        for one in OLDER:
            wanted = create(spec(guest_config=pb.GuestConfig(hostname="h")))
            self.assertEqual(self.refusal(one, "create_machine", wanted), "a guest hostname")

    def test_image_of_a_disk(self) -> None:
        """
        Older revisions refuse images on disks other than ``machine-image``; the error names that
        disk.
        """
        disk = pb.Volume(name="boot", local_disk=pb.LocalDisk(image=pb.ImageSpec(image="i")))
        for one in OLDER:
            told = self.refusal(one, "create_machine", create(spec(volumes=[disk])))
            self.assertEqual(
                told, "an image of the disk 'boot': only that of a disk 'machine-image'"
            )
            request = pb.AttachVolumeRequest(machine_id="m", volume=disk)
            told = self.refusal(one, "attach_volume", request)
            self.assertEqual(told, "an image of the disk 'boot' of a machine that exists")

    def test_size_of_the_image(self) -> None:
        """Older revisions refuse a size of the image disk."""
        disk = image_disk("i")
        disk.local_disk.size_bytes = 1
        for one in OLDER:
            told = self.refusal(one, "create_machine", create(spec(volumes=[disk])))
            self.assertIn("a size of the disk", told)

    def test_encryption(self) -> None:
        """onmetal and spheric refuse encrypted volumes, whose data would stay unencrypted."""
        disk = pb.Volume(name="d", connection=pb.VolumeConnection(encryption_data={"k": b"s"}))
        for one in (ONMETAL, SPHERIC):
            told = self.refusal(one, "create_machine", create(spec(volumes=[disk])))
            self.assertEqual(told, "how a volume is encrypted")
            request = pb.AttachVolumeRequest(machine_id="m", volume=disk)
            told = self.refusal(one, "attach_volume", request)
            self.assertEqual(told, "how a volume is encrypted")

    def test_attributes(self) -> None:
        """spheric refuses unknown attributes of network interfaces."""
        nic = pb.NetworkInterface(name="eth", attributes={"mtu": "9000"})
        told = self.refusal(SPHERIC, "create_machine", create(spec(network_interfaces=[nic])))
        self.assertEqual(told, "the attribute 'mtu' of the network interface 'eth'")

    def test_answers(self) -> None:
        """Answers omit the fields that the revision lacks, and still list the machine."""
        disk = pb.Volume(name="boot", local_disk=pb.LocalDisk(image=pb.ImageSpec(image="i")))
        machine = pb.Machine(
            spec=spec(class_="c", volumes=[disk], guest_config=pb.GuestConfig(hostname="h")),
            status=pb.MachineStatus(machine_conditions=[pb.MachineCondition(type="T")]),
        )
        for one in OLDER:
            call = one.call("list_machines")
            raw = call.encode_response(pb.ListMachinesResponse(machines=[machine]))
            (found,) = call.decode_response(raw).machines  # type: ignore[attr-defined]
            empty = pb.Volume(name="boot", local_disk=pb.LocalDisk())
            self.assertEqual(
                found,
                pb.Machine(
                    spec=spec(class_="c", volumes=[image_disk("i"), empty]),
                    status=pb.MachineStatus(),
                ),
            )

    def test_class_with_more(self) -> None:
        """onmetal omits machine classes with other resources than CPU and memory."""
        answer = pb.StatusResponse()
        for resources in ({"cpu": 1, "memory": 2}, {"cpu": 1, "memory": 2, "gpu": 1}):
            one = answer.machine_class_status.add(quantity=1)
            one.machine_class.name = f"c{len(resources)}"
            one.machine_class.capabilities.resources.update(resources)
        call = ONMETAL.call("status")
        found: Any = call.decode_response(call.encode_response(answer))
        self.assertEqual([each.machine_class.name for each in found.machine_class_status], ["c2"])

    def test_name_of_the_image(self) -> None:
        """A disk named like the image disk, beside an image, is refused."""
        for one, number in ((ONMETAL, 5), (SPHERIC, 7)):
            disk = field(number, field(1, IMAGE_DISK.encode()))
            raw = field(1, field(2, field(2, field(1, b"i")) + disk))
            with self.assertRaises(BadRequest):
                one.call("create_machine").decode_request(raw)

    def test_comma(self) -> None:
        """A prefix with a comma is refused, because the comma separates prefixes."""
        raw = field(1, field(2, field(8, field(4, b"a,b"))))
        with self.assertRaises(BadRequest):
            SPHERIC.call("create_machine").decode_request(raw)


class Onmetal01Tests(SynchronousTestCase):
    """onmetal v0.1, where volumes and network interfaces are separate objects."""

    def test_spec(self) -> None:
        """Encode a machine with Ignition, an empty disk, a volume and a NIC, byte for byte."""
        disk = field(1, b"d") + field(2, b"oda") + field(4, field(1, 5))
        volume = field(1, b"v") + field(3, b"vid")
        nic = field(1, b"eth") + field(2, b"nid")
        inner = field(3, b"c") + field(4, field(1, b"i")) + field(5, disk) + field(5, volume)
        expected = field(1, field(2, inner + field(6, nic)))
        wanted = create(
            spec(
                class_="c",
                ignition_data=b"i",
                volumes=[
                    pb.Volume(name="d", device="oda", local_disk=pb.LocalDisk(size_bytes=5)),
                    pb.Volume(name="v", connection=pb.VolumeConnection(handle="vid")),
                ],
                network_interfaces=[
                    pb.NetworkInterface(name="eth", attributes={ID_ATTRIBUTE: "nid"})
                ],
            )
        )
        call = ONMETAL_01.call("create_machine")
        self.assertEqual(call.encode_request(wanted), expected)
        self.assertEqual(call.decode_request(expected), wanted)

    def test_attachments(self) -> None:
        """Later attachments refer to objects by id, too."""
        volume = pb.Volume(name="v", connection=pb.VolumeConnection(handle="i"))
        nic = pb.NetworkInterface(name="v", attributes={ID_ATTRIBUTE: "i"})
        for attribute, message, number in (
            ("attach_volume", pb.AttachVolumeRequest(machine_id="m", volume=volume), 3),
            (
                "attach_network_interface",
                pb.AttachNetworkInterfaceRequest(machine_id="m", network_interface=nic),
                2,
            ),
        ):
            expected = field(1, b"m") + field(2, field(1, b"v") + field(number, b"i"))
            call = ONMETAL_01.call(attribute)
            self.assertEqual(call.encode_request(message), expected)
            self.assertEqual(call.decode_request(expected), message)

    def test_classes(self) -> None:
        """``ListMachineClasses`` lists the classes without their quantities."""
        call = ONMETAL_01.call("status")
        self.assertEqual(call.path, "/machine.v1alpha1.MachineRuntime/ListMachineClasses")
        expected = field(1, field(1, b"c") + field(2, b"\x08\xd0\x0f" + field(2, 7)))
        answer = pb.StatusResponse()
        one = answer.machine_class_status.add(quantity=UNCOUNTED)
        one.machine_class.name = "c"
        one.machine_class.capabilities.resources.update({"cpu": 2, "memory": 7})
        self.assertEqual(call.encode_response(answer), expected)
        self.assertEqual(call.decode_response(expected), answer)

    def test_loss(self) -> None:
        """A volume or network interface without an object id is refused."""
        for wanted in (
            spec(volumes=[pb.Volume(connection=pb.VolumeConnection(driver="ceph", handle="h"))]),
            spec(network_interfaces=[pb.NetworkInterface(network_id="n")]),
        ):
            with self.assertRaises(NotImplementedByBackend):
                ONMETAL_01.call("create_machine").encode_request(create(wanted))


class RenamedTests(SynchronousTestCase):
    """spheric's renamed messages, compared with ours."""

    def shape(self, descriptor: Any) -> Any:
        """Return a message's wire format: numbers and types of its fields."""
        return {
            one.number: (
                one.type,
                one.is_repeated,
                self.shape(one.message_type) if one.message_type is not None else None,
                {value.number for value in one.enum_type.values} if one.enum_type else None,
            )
            for one in descriptor.fields
        }

    def test_same(self) -> None:
        """The renamed messages have the same wire format as ours."""
        for name, inside in RENAMED.items():
            there = spheric_pb2.DESCRIPTOR.message_types_by_name[name]
            ours = pb.DESCRIPTOR.message_types_by_name[inside]
            self.assertEqual(self.shape(there), self.shape(ours), name)


_text = some.text(max_size=6)
_maps = some.dictionaries(_text, _text, max_size=2)
_secrets = some.dictionaries(_text, some.binary(max_size=4), max_size=2)
_int64 = some.integers(-(2**63), 2**63 - 1)
_states = some.sampled_from([pb.MACHINE_PENDING, pb.MACHINE_RUNNING, pb.MACHINE_TERMINATED])
_cidrs = some.text(alphabet="0123456789./:", min_size=1, max_size=6)
_attributes = some.fixed_dictionaries(
    {},
    optional=dict.fromkeys(SUBNET_ATTRIBUTES, some.text(min_size=1, max_size=6))
    | {CIDRS_ATTRIBUTE: some.lists(_cidrs, min_size=1, max_size=2).map(",".join)},
)

_connection = some.builds(
    pb.VolumeConnection, driver=_text, handle=_text, attributes=_maps, secret_data=_secrets
)
_disk = some.builds(
    pb.Volume,
    name=_text.filter(lambda name: name != IMAGE_DISK),
    device=_text,
    local_disk=some.none() | some.builds(pb.LocalDisk, size_bytes=_int64),
    connection=some.none() | _connection,
)
_disks = some.tuples(
    some.lists(some.text(min_size=1, max_size=6).map(image_disk), max_size=1),
    some.lists(_disk, max_size=2),
).map(lambda both: both[0] + both[1])
_spec = some.builds(
    spec,
    power=some.sampled_from(pb.Power.values()),
    class_=_text,
    ignition_data=some.binary(max_size=8),
    volumes=_disks,
    network_interfaces=some.lists(
        some.builds(
            pb.NetworkInterface,
            name=_text,
            network_id=_text,
            ips=some.lists(_text, max_size=2),
            attributes=_attributes,
        ),
        max_size=2,
    ),
)
_status = some.builds(
    pb.MachineStatus,
    observed_generation=_int64,
    state=_states,
    image_ref=_text,
    volumes=some.lists(
        some.builds(
            pb.VolumeStatus,
            name=_text.filter(lambda name: name != IMAGE_DISK),
            state=some.sampled_from(pb.VolumeState.values()),
        ),
        max_size=2,
    ),
    network_interfaces=some.lists(
        some.builds(
            pb.NetworkInterfaceStatus,
            name=_text,
            handle=_text,
            state=some.sampled_from(pb.NetworkInterfaceState.values()),
        ),
        max_size=2,
    ),
)
_machine = some.builds(
    pb.Machine,
    metadata=some.none()
    | some.builds(
        ObjectMetadata,
        id=_text,
        annotations=_maps,
        labels=_maps,
        generation=_int64,
        created_at=_int64,
        deleted_at=_int64,
    ),
    spec=some.none() | _spec,
    status=some.none() | _status,
)

_REQUESTS = some.one_of(
    some.tuples(some.just("version"), some.builds(pb.VersionRequest, version=_text)),
    some.tuples(
        some.just("list_machines"),
        some.builds(
            pb.ListMachinesRequest,
            filter=some.none() | some.builds(pb.MachineFilter, id=_text, label_selector=_maps),
        ),
    ),
    some.tuples(
        some.just("create_machine"),
        some.builds(pb.CreateMachineRequest, machine=some.none() | _machine),
    ),
    some.tuples(
        some.just("delete_machine"), some.builds(pb.DeleteMachineRequest, machine_id=_text)
    ),
    some.tuples(
        some.just("update_machine_annotations"),
        some.builds(pb.UpdateMachineAnnotationsRequest, machine_id=_text, annotations=_maps),
    ),
    some.tuples(
        some.just("update_machine_power"),
        some.builds(
            pb.UpdateMachinePowerRequest,
            machine_id=_text,
            power=some.sampled_from(pb.Power.values()),
        ),
    ),
    some.tuples(
        some.just("attach_volume"),
        some.builds(pb.AttachVolumeRequest, machine_id=_text, volume=some.none() | _disk),
    ),
    some.tuples(
        some.just("detach_volume"),
        some.builds(pb.DetachVolumeRequest, machine_id=_text, name=_text),
    ),
    some.tuples(
        some.just("attach_network_interface"),
        some.builds(
            pb.AttachNetworkInterfaceRequest,
            machine_id=_text,
            network_interface=some.none()
            | _spec.map(lambda made: (made.network_interfaces or [None])[0]),
        ),
    ),
    some.tuples(
        some.just("detach_network_interface"),
        some.builds(pb.DetachNetworkInterfaceRequest, machine_id=_text, name=_text),
    ),
    some.tuples(some.just("status"), some.just(pb.StatusRequest())),
    some.tuples(some.just("exec"), some.builds(pb.ExecRequest, machine_id=_text)),
)
_RESPONSES = some.one_of(
    some.tuples(
        some.just("version"),
        some.builds(pb.VersionResponse, runtime_name=_text, runtime_version=_text),
    ),
    some.tuples(
        some.just("list_machines"),
        some.builds(pb.ListMachinesResponse, machines=some.lists(_machine, max_size=3)),
    ),
    some.tuples(
        some.just("create_machine"),
        some.builds(pb.CreateMachineResponse, machine=some.none() | _machine),
    ),
    some.tuples(some.just("delete_machine"), some.just(pb.DeleteMachineResponse())),
    some.tuples(some.just("exec"), some.builds(pb.ExecResponse, url=_text)),
)


_WHOLE = [one for one in REVISIONS.values() if one is not ONMETAL_01]
"""Revisions whose machines contain their disks and network interfaces."""


class RoundTripTests(SynchronousTestCase):
    """Messages that every revision can hold survive encoding and decoding."""

    @given(_REQUESTS)
    def test_requests(self, told: tuple[str, Any]) -> None:
        """A request survives ``encode_request`` and ``decode_request``."""
        attribute, message = told
        for one in _WHOLE:
            call = one.call(attribute)
            self.assertEqual(call.decode_request(call.encode_request(message)), message, one.name)

    @given(_RESPONSES)
    def test_responses(self, told: tuple[str, Any]) -> None:
        """A response survives ``encode_response`` and ``decode_response``."""
        attribute, message = told
        for one in _WHOLE:
            call = one.call(attribute)
            raw = call.encode_response(message)
            self.assertEqual(call.decode_response(raw), message, one.name)

    @given(some.binary(max_size=64))
    def test_bytes(self, raw: bytes) -> None:
        """Any bytes decode, or raise DecodeError or BadRequest."""
        for one in REVISIONS.values():
            for call in one.calls.values():
                for read in (call.decode_request, call.decode_response):
                    try:
                        read(raw)
                    except (DecodeError, BadRequest):
                        pass

"""
Tests for :mod:`twisted_exec.iri.protos`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.iri import protos
from twisted_exec.iri.protos import (
    console_pb2,
    event_pb2,
    machine_pb2,
    meta_pb2,
    onmetal01_pb2,
    onmetal_pb2,
    spheric_pb2,
)

MODULES = {
    "meta": meta_pb2,
    "event": event_pb2,
    "machine": machine_pb2,
    "console": console_pb2,
    "onmetal": onmetal_pb2,
    "onmetal01": onmetal01_pb2,
    "spheric": spheric_pb2,
}
ROOT = Path(__file__).parents[2]
FOLDER = "twisted_exec/iri/protos"


class CurrentTests(SynchronousTestCase):
    """The generated modules are those of the ``.proto`` files beside them."""

    def compile(self, out: str) -> FileDescriptorSet:
        """Compile the current ``.proto`` files."""
        sources = [f"{ROOT}/{FOLDER}/{name}.proto" for name in MODULES]
        status = protoc.main(["protoc", f"-I{ROOT}", f"--descriptor_set_out={out}", *sources])
        self.assertEqual(status, 0)
        return FileDescriptorSet.FromString(Path(out).read_bytes())

    def test_current(self) -> None:
        """
        The generated modules match their ``.proto`` files; descriptors are compared, because they
        do not depend on the generator's version.
        """
        with tempfile.NamedTemporaryFile() as out:
            written = self.compile(out.name)
        committed = {
            one.name: one
            for one in (
                FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
                for module in MODULES.values()
            )
        }
        for file in written.file:
            for message in file.message_type:
                drop_json_names(message)
        self.assertEqual({one.name: one for one in written.file}, committed)

    def test_all(self) -> None:
        """Every ``.proto`` file has a generated module and a place in the documented command."""
        found = {path.stem for path in (ROOT / FOLDER).glob("*.proto")}
        self.assertEqual(found, set(MODULES))
        self.assertIn("{" + ",".join(MODULES) + "}.proto", protos.__doc__ or "")

    def test_oldest_runtime(self) -> None:
        """The generated code needs no protobuf newer than the declared minimum, 6.30."""
        for module in MODULES.values():
            text = Path(module.__file__).read_text()
            self.assertIn("# Protobuf Python Version: 6.30.0", text)


class WireTests(SynchronousTestCase):
    """Wire format of other implementations of the interface."""

    def test_machine(self) -> None:
        """Power is field 1 of the spec and class field 2, since ironcore v0.3.0."""
        spec = machine_pb2.MachineSpec(power=machine_pb2.POWER_OFF, **{"class": "pty"})
        self.assertEqual(spec.SerializeToString(), b"\x08\x01\x12\x03pty")

    def test_exec(self) -> None:
        """Exec has the method path and fields of every ironcore version."""
        service = machine_pb2.DESCRIPTOR.services_by_name["MachineRuntime"]
        self.assertEqual(service.full_name, "machine.v1alpha1.MachineRuntime")
        self.assertEqual(machine_pb2.ExecRequest(machine_id="m").SerializeToString(), b"\x0a\x01m")
        self.assertEqual(machine_pb2.ExecResponse(url="u").SerializeToString(), b"\x0a\x01u")

    def test_log(self) -> None:
        """Our own Log service has its method path and fields."""
        service = console_pb2.DESCRIPTOR.services_by_name["Console"]
        self.assertEqual(service.full_name, "twisted_exec.console.v1alpha1.Console")
        self.assertEqual(
            [method.name for method in service.methods],
            ["Log", "SetAlerts", "ListMatches", "SetRecordings", "ListRecordings", "Recording"],
        )
        self.assertEqual(console_pb2.LogRequest(machine_id="m").SerializeToString(), b"\x0a\x01m")
        self.assertEqual(console_pb2.LogResponse(url="u").SerializeToString(), b"\x0a\x01u")


def drop_json_names(message: object) -> None:
    """Remove the JSON names, which protoc adds but generated code omits."""
    for field in message.field:  # type: ignore[attr-defined]
        field.ClearField("json_name")
    for nested in message.nested_type:  # type: ignore[attr-defined]
        drop_json_names(nested)

"""
Tests for :mod:`twisted_exec.storage.etcd.protos`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from twisted.trial.unittest import SynchronousTestCase

from tests.iri.test_protos import drop_json_names
from twisted_exec.storage.etcd import protos
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb

ROOT = Path(__file__).parents[3]
SOURCE = "twisted_exec/storage/etcd/protos/etcd.proto"


class CurrentTests(SynchronousTestCase):
    """The generated module is that of the ``.proto`` file beside it."""

    def test_current(self) -> None:
        """A change that was not generated again is noticed."""
        with tempfile.NamedTemporaryFile() as out:
            command = [
                "protoc",
                f"-I{ROOT}",
                f"--descriptor_set_out={out.name}",
                f"{ROOT}/{SOURCE}",
            ]
            self.assertEqual(protoc.main(command), 0)
            (written,) = FileDescriptorSet.FromString(Path(out.name).read_bytes()).file
        for message in written.message_type:
            drop_json_names(message)
        self.assertEqual(written, FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb))
        self.assertIn(SOURCE, protos.__doc__ or "")

    def test_oldest_runtime(self) -> None:
        """The generated code asks for no protobuf newer than the declared floor, 6.30."""
        self.assertIn("# Protobuf Python Version: 6.30.0", Path(pb.__file__).read_text())


class WireTests(SynchronousTestCase):
    """Bytes as etcd has them: api/etcdserverpb/rpc.proto, api/mvccpb/kv.proto."""

    def test_transaction(self) -> None:
        """Compare's target is field 2, its key 3, its mod_revision 6; the result, 0, is left out."""
        compare = pb.Compare(target=pb.Compare.MOD, key=b"k", mod_revision=5)
        self.assertEqual(compare.SerializeToString(), b"\x10\x02\x1a\x01k\x30\x05")
        put = pb.RequestOp(request_put=pb.PutRequest(key=b"k", value=b"v", prev_kv=True))
        self.assertEqual(put.SerializeToString(), b"\x12\x08\x0a\x01k\x12\x01v\x20\x01")

    def test_watch(self) -> None:
        """A watch from a revision on, in fragments."""
        create = pb.WatchCreateRequest(key=b"a", range_end=b"b", start_revision=3, fragment=True)
        request = pb.WatchRequest(create_request=create)
        self.assertEqual(request.SerializeToString(), b"\x0a\x0a\x0a\x01a\x12\x01b\x18\x03\x40\x01")

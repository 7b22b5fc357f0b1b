"""
The store that several servers share: etcd, by its v3 interface.

``target`` says where it is, ``client`` calls it, ``keys`` is what its keys and values
mean; ``order`` is the one order in which own writes and those of others are shown,
``feed`` brings the latter, and ``store`` joins them behind the door of the room.
"""

# Before grpc is imported: it sets how grpc behaves.
import twisted_exec.streaming.grpc_calls  # noqa: F401

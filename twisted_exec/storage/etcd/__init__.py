"""
The store that several servers share: etcd, by its v3 interface.

``target`` says where it is, ``client`` calls it, ``faults`` is what may come of that, ``keys``
what its keys and values mean.  ``order`` is the one order in which own writes and those of others
are shown; ``feed`` brings the latter, and ``following`` sees to it that it does.  ``reads`` and
``writes`` rest on that, and ``store`` is the door.
"""

# Before grpc is imported: it sets how grpc behaves.
import twisted_exec.streaming.grpc_calls  # noqa: F401

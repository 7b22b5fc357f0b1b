"""
The store that several servers share: etcd, by its v3 API.

``target`` reads the option, ``client`` calls etcd, ``errors`` are the errors of those calls,
``keys`` encodes keys and values.  ``watch`` receives the changes of all servers, ``reflector``
keeps the watch going, and ``order`` merges it with our own writes.  ``reads`` and ``writes`` build
on these; ``store`` implements
:class:`~twisted_exec.storage.interfaces.IStorage`.
"""

# Before grpc is imported: it sets how grpc behaves.
import twisted_exec.streaming.grpc_calls  # noqa: F401

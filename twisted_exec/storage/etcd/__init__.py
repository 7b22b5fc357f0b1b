"""
The store that several servers share: etcd, by its v3 API.

``target`` reads the option, ``client`` calls etcd and has the errors of those calls, ``keys`` encodes
keys and values.  ``reflector`` receives the changes of all servers, and ``order`` merges them with our
own writes.  ``store`` builds reads and writes on these; it implements
:class:`~twisted_exec.storage.interfaces.IStorage`.  ``restore`` copies a backup of a SQLite
store into etcd.
"""

# Before grpc is imported: it sets how grpc behaves.
import twisted_exec.streaming.grpc_calls  # noqa: F401

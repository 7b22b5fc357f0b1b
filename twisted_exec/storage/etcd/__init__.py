"""
The store that several servers share: etcd, by its v3 API.
"""

# Before grpc is imported: it sets how grpc behaves.
import twisted_exec.program.grpc_calls  # noqa: F401

"""
The machine runtime interface: protos, client, server, exec tokens.
"""

# Before grpc is imported: it sets how grpc behaves.
import twisted_exec.streaming.grpc_calls  # noqa: F401

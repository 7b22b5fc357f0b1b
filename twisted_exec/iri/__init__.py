"""
The machine runtime interface: protos, client, server, exec tokens.
"""

# Imported before grpc, because it sets grpc's environment variables.
import twisted_exec.program.grpc_calls  # noqa: F401

"""
The machine runtime interface: protos, client, server, exec tokens.
"""

import os

# grpcio's fork handlers wait for its own threads: a pty spawned while calls are
# under way hangs in them.  grpc reads this once, when it is first imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Its C core writes to standard error by itself, past every log; what matters comes
# back as the status of a call.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

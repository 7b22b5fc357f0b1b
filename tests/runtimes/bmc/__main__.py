"""
The small BMC as a program: ``python -m tests.runtimes.bmc --port 8443 --directory DIRECTORY``.

It prints its address and pin, and writes its certificate and the password to files there.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from twisted.internet import reactor as _reactor

from tests.runtimes.bmc.server import PASSWORD, USER, SmallBMC
from tests.tls.support import authority, write

reactor: Any = _reactor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--kind",
        default="websocket",
        help="a file of tests/runtimes/bmc/documents, or the path of a mockup's directory",
    )
    parser.add_argument("--directory", default=".")
    parser.add_argument("--session-limit", type=int, default=8)
    options = parser.parse_args()
    bmc = SmallBMC(options.kind, session_limit=options.session_limit).start(options.port)
    os.makedirs(options.directory, exist_ok=True)
    ca = write(options.directory, "ca.pem", authority("serving").certificate_pem)
    password = write(options.directory, "password", f"{PASSWORD}\n".encode())
    os.chmod(password, 0o600)
    print(f"host 127.0.0.1 port {bmc.port}, user {USER}, password in {password}, CA in {ca}")
    print(f"pin {bmc.pin}", flush=True)
    reactor.run()


if __name__ == "__main__":
    main()

"""
The small BMC as a program: ``python -m tests.runtimes.bmc --port 8443 --directory DIRECTORY``.

It prints its address and pin, and writes its certificate and the password to files there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.error import CannotListenError

from tests.runtimes.bmc.server import KINDS, PASSWORD, USER, SmallBMC
from tests.tls.support import authority, write

reactor: Any = _reactor


def kind_of(text: str) -> str:
    """
    Return the kind of a small BMC; see :func:`.server.read_documents`.

    :raises argparse.ArgumentTypeError: there is no such kind.
    """
    kind = text if "/" in text else text.removesuffix(".json")
    if "/" in kind and not Path(kind, "redfish/v1/index.json").is_file():
        raise argparse.ArgumentTypeError(f"{text}/redfish/v1/index.json is missing")
    if "/" not in kind and kind not in KINDS:
        raise argparse.ArgumentTypeError(
            f"{text!r}: it is none of {', '.join(KINDS)}, nor a path with a slash"
        )
    return kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--kind",
        type=kind_of,
        default="websocket",
        help="a file of tests/runtimes/bmc/documents, or the path of a mockup's directory",
    )
    parser.add_argument("--directory", default=".")
    parser.add_argument("--session-limit", type=int, default=8)
    options = parser.parse_args()
    bmc = SmallBMC(options.kind, session_limit=options.session_limit)
    try:
        bmc.start(options.port)
    except CannotListenError as problem:
        parser.error(f"port {options.port} cannot be used: {problem.socketError}")
    os.makedirs(options.directory, exist_ok=True)
    ca = write(options.directory, "ca.pem", authority("serving").certificate_pem)
    password = write(options.directory, "password", f"{PASSWORD}\n".encode())
    os.chmod(password, 0o600)
    print(f"host 127.0.0.1 port {bmc.port}, user {USER}, password in {password}, CA in {ca}")
    print(f"pin {bmc.pin}", flush=True)
    reactor.run()


if __name__ == "__main__":
    main()

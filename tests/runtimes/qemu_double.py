"""
Stands in for a QEMU in a state that a real one cannot be brought into: ``python qemu_double.py
STATE ARGS``.

It opens the two sockets of its command line, speaks enough of QMP, and once the machine goes on
(``cont``) it stops with STATE as its status.  With ``io-error`` the next ``cont`` is for good.  With
``shutdown`` the machine is off then, and no command is answered any more; with ``late-shutdown``
the process has ended before its last event can be read.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time


def listen(name: str) -> socket.socket:
    path = re.search(f"id={name},path=([^,]+)", " ".join(sys.argv))
    assert path is not None
    server = socket.socket(socket.AF_UNIX)
    server.bind(path[1])
    server.listen()
    return server


def main() -> None:
    expected, status, conts = sys.argv[1], "prelaunch", 0
    serial = listen("serial0")
    threading.Thread(target=lambda: serial.accept()[0].recv(1), daemon=True).start()
    control = listen("control0").accept()[0].makefile("rwb", buffering=0)

    def say(**document: object) -> None:
        control.write(json.dumps(document).encode() + b"\n")

    say(QMP={})
    for line in control:
        command = json.loads(line)["execute"]
        if command == "query-status":
            say(**{"return": {"status": status}})
        elif command == "query-chardev":
            say(**{"return": [{"label": "serial0", "filename": "unix"}]})
        else:
            say(**{"return": {}})
        if command == "cont":
            conts += 1
            if expected == "shutdown":
                say(event="SHUTDOWN", data={"guest": True, "reason": "guest-shutdown"})
                signal.pause()
            if expected == "late-shutdown":
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                emulator, kept = os.getpid(), control.fileno()
                if os.fork() != 0:
                    os._exit(0)
                os.closerange(0, kept)
                os.closerange(kept + 1, 256)
                while os.getppid() == emulator:
                    pass
                time.sleep(0.2)
                say(event="SHUTDOWN", data={"guest": True, "reason": "guest-shutdown"})
                os._exit(0)
            status = "running" if expected == "io-error" and conts > 1 else expected
            say(event="STOP" if status == expected else "RESUME", data={})
        if command == "quit":
            return


main()

"""
The consoles of 200 machines in one terminal, one of which prints without end: time to open, memory, CPU.

The machines are shells behind API server, poollet and runtime in one process.  One prints its clock five
times a second, so that the delay of its lines beside the flood is known.  A terminal of 200 by 50 is a
pseudo-terminal here, whose reader takes everything.  ``python -m tests.benchmarks fleets`` takes two minutes.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests import procfs
from tests.interop.programs import Programs

MACHINES = 200
RUNS = 50
SECONDS = 15.0
_FLOOD = "while :; do seq 1 1000; done\\r"
_CLOCK = "while :; do date +clock-%s.%N; sleep 0.2; done\\r"
_SERVER = f"""
import sys
from twisted.scripts.twistd import run
from twisted_exec.runtimes import config
config._QUANTITY = {MACHINES}
sys.argv[0] = "twistd"
run()
"""
"""By default a class has up to 100 machines."""
_CLOCKS = re.compile(rb"clock-(\d+\.\d+)")


def main(scratch: Path) -> None:
    programs = Programs("fleets-")
    console = os.path.join(os.path.dirname(sys.executable), "kubectl-console")
    try:
        programs.run(
            "standalone",
            sys.executable,
            "-c",
            _SERVER,
            "-n",
            "--pidfile=",
            "exec-standalone",
            f"--state-dir={scratch}/state",
            "--port=0",
            "--without-demo",
            "--without-spaces",
            "--no-keep-machines",
        )
        programs.until("the API server", lambda: "kubectl create" in programs.log("standalone"))
        os.environ["KUBECONFIG"] = f"{scratch}/state/admin.kubeconfig"
        _create(programs)
        for name, text in (("vm-000", _FLOOD), ("vm-100", _CLOCK)):
            subprocess.run(
                [console, name, "--send", text, "--timeout", "5", "-q"], stdout=subprocess.DEVNULL
            )
        _follow(console, "pipe", "--all", "--tail", "1")
        _follow(console, "terminal", "--all", "--tail", "1", terminal=True)
        _follow(console, "tiled", "--all", "--tiled", terminal=True)
        subprocess.run([console, "vm-117", "--send", "X=1\\r", "-q"], stdout=subprocess.DEVNULL)
        subprocess.run([console, "vm-133", "--send", "X=2\\r", "-q"], stdout=subprocess.DEVNULL)
        began = time.monotonic()
        subprocess.run([console, "-l", "run=yes", "--run", 'echo "x is $X"'])
        print(f"--run on {RUNS}: {time.monotonic() - began:.1f} s", flush=True)
    finally:
        programs.stop()


def _create(programs: Programs) -> None:
    objects = []
    for number in range(MACHINES):
        labels = {"run": "yes"} if 100 < number <= 100 + RUNS else {}
        objects.append(
            {
                "apiVersion": "compute.ironcore.dev/v1alpha1",
                "kind": "Machine",
                "metadata": {"name": f"vm-{number:03}", "labels": labels},
                "spec": {
                    "machineClassRef": {"name": "pty"},
                    "machinePoolRef": {"name": "local"},
                    "power": "On",
                },
            }
        )
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    subprocess.run(
        ["kubectl", "apply", "-f", "-"], input=document.encode(), stdout=subprocess.DEVNULL
    )
    waiting = ["kubectl", "wait", "machine", "--all", "--for=jsonpath={.status.state}=Running"]
    subprocess.run([*waiting, "--timeout=120s"], stdout=subprocess.DEVNULL, check=True)


def _follow(console: str, title: str, *words: str, terminal: bool = False) -> None:
    """Run the program for some seconds, and print what it cost."""
    errors, error_end = os.pipe()
    if terminal:
        reader, writer = pty.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    else:
        reader, writer = os.pipe()
    source = writer if terminal else subprocess.DEVNULL
    process = subprocess.Popen([console, *words], stdin=source, stdout=writer, stderr=error_end)
    os.close(writer)
    os.close(error_end)
    began, received, messages = time.monotonic(), 0, b""
    delays, first = [], 0.0
    while (now := time.monotonic()) < began + SECONDS:
        for descriptor in select.select([reader, errors], [], [], 0.2)[0]:
            data = os.read(descriptor, 1 << 20)
            if descriptor == errors:
                messages += data
                continue
            first = first or now
            received += len(data)
            wall = time.time()
            if now > began + 5:
                delays += [wall - float(match[1]) for match in _CLOCKS.finditer(data)]
    cpu, memory = procfs.cpu_seconds(process.pid), procfs.resident_bytes(process.pid)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        if select.select([reader], [], [], 0.05)[0]:
            try:
                os.read(reader, 1 << 20)
            except OSError:
                break
    code = process.wait()
    os.close(reader)
    os.close(errors)
    print(f"{title}: exit code {code}; {messages.decode().splitlines()[-1:]}")
    print(
        f"  first output after {first - began:.2f} s; {received / (now - began) / 1e6:.2f} MB/s out; "
        f"CPU {cpu / (now - began):.0%} of a core; {memory >> 20} MiB"
    )
    if delays:
        delays.sort()
        print(
            f"  delay of another machine's lines: median {delays[len(delays) // 2]:.3f} s, "
            f"longest {delays[-1]:.3f} s, {len(delays)} lines"
        )
    sys.stdout.flush()

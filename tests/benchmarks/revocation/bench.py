"""
From the withdrawal of a right to the last byte of its sessions: p50, p99, the slowest, a histogram.

``python -m tests.benchmarks revocation [--on=ARRANGEMENT] [CAUSE ...]`` opens 1 000 consoles
(``SESSIONS`` may name another number) of ten machines through API server and poollet, for each
cause anew, and withdraws the right.  The time of a session counts from the moment before the
withdrawal is sent, or from the end of the certificate or token, until its client has the status or
has lost the connection.

The arrangements are ``standalone`` (the default), ``etcd`` (two API servers on one etcd: each has
half of the sessions, and one gets the withdrawal) and ``kubernetes`` (an API server behind a
kube-apiserver).
"""

from __future__ import annotations

import selectors
import ssl
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

from tests.benchmarks.scale import Opening

from .arrangements import ARRANGEMENTS, Arrangement
from .causes import SESSIONS, Chain, Withdrawal

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0)
_ON = "--on="
_LONGEST_SECONDS = 20.0
_EARLY_SECONDS = 0.1


def watch(withdrawal: Withdrawal, ends: dict[int, float], ready: Callable[[], None]) -> None:
    """Note when each session has ended: its status or notice has come, or the connection is lost."""
    opened = withdrawal.opened
    selector = selectors.DefaultSelector()
    for number, each in enumerate(opened):
        selector.register(each.descriptor, selectors.EVENT_READ, (number, each))
    ready()
    deadline = time.time() + _LONGEST_SECONDS + SESSIONS // 10
    first = 0.0
    while len(ends) < len(opened) and time.time() < deadline:
        for key, _ in selector.select(0.2):
            number, each = key.data
            if has_ended(each, withdrawal.signs):
                ends[number] = time.time()
                first = first or ends[number]
                selector.unregister(key.fd)
                if not withdrawal.goes_on:
                    each.close()
        if first and time.time() > first + _LONGEST_SECONDS:
            break
    selector.close()


def has_ended(session: Opening, signs: Sequence[bytes]) -> bool:
    """Read what there is; true if one of the signs or the end of the connection is in it."""
    assert session.line is not None
    try:
        while data := session.line.recv(65536):
            if any(sign in data for sign in signs):
                return True
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    except OSError:
        pass
    return True


def measure(chain: Chain, cause: str, withdrawal: Withdrawal) -> None:
    """Withdraw the right of open sessions, and print the times."""
    opened = withdrawal.opened
    time.sleep(2)  # lets the reviews of new sessions settle
    ends: dict[int, float] = {}
    ready = Event()
    watching = Thread(target=watch, args=(withdrawal, ends, ready.set))
    watching.start()
    ready.wait()
    if withdrawal.end:  # reviews until then would count as CPU time of the withdrawal
        time.sleep(max(0.0, withdrawal.end - time.time() - _EARLY_SECONDS))
    began, cpu = withdrawal.end or time.time(), chain.cpu()
    withdrawal.send()
    watching.join()
    spent = {hop: seconds - cpu[hop] for hop, seconds in chain.cpu().items()}
    if withdrawal.goes_on and (cut := sum(has_ended(each, ()) for each in opened)):
        print(f"{cause:15} {cut} sessions have ended instead of going on")
    for each in opened:
        each.close()
    report(cause, sorted(end - began for end in ends.values()), len(opened), spent)


def report(cause: str, times: Sequence[float], sessions: int, cpu: dict[str, float]) -> None:
    """
    Print a row.

    :param times: of the sessions that have ended, in ascending order.
    """
    if not times:
        print(f"{cause:15} no session has ended", flush=True)
        return
    p50, p99 = (times[min(len(times) - 1, int(len(times) * part))] for part in (0.5, 0.99))
    missing = f"; {sessions - len(times)} have not ended" if len(times) < sessions else ""
    print(
        f"{cause:15} {len(times)} sessions: p50 {p50:.2f} s, p99 {p99:.2f} s, "
        f"p100 {times[-1]:.2f} s{missing}; CPU "
        + ", ".join(f"{hop} {seconds:.2f} s" for hop, seconds in cpu.items())
    )
    counts = [0] * (len(BUCKETS) + 1)
    for seconds in times:
        counts[bisect_left(BUCKETS, seconds)] += 1
    limits = [*(f"to {bound:g} s" for bound in BUCKETS), "later"]
    histogram = (f"{limit}: {count}" for limit, count in zip(limits, counts, strict=True))
    print(f"{'':15} {', '.join(histogram)}", flush=True)


def main(directory: Path, *words: str) -> None:
    """Run the benchmark in one arrangement."""
    name = next((word.removeprefix(_ON) for word in words if word.startswith(_ON)), "standalone")
    causes = [word for word in words if not word.startswith(_ON)]
    if name not in ARRANGEMENTS:
        sys.exit(f"no such arrangement: {name}; there are {', '.join(ARRANGEMENTS)}")

    def measure_all(arrangement: Arrangement) -> None:
        chain = Chain(arrangement)
        observable = chain.causes()
        for unknown in set(causes) - set(observable):
            print(f"{unknown:15} cannot be observed here; there are {', '.join(observable)}")
        for cause, prepared in observable.items():
            if cause in causes or not causes:
                with prepared() as withdrawal:
                    measure(chain, cause, withdrawal)

    print(f"{name}:", flush=True)
    ARRANGEMENTS[name](directory, measure_all)

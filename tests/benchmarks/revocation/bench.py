"""
From the withdrawal of a right to the last byte of its sessions: p50, p99, the slowest, a histogram.

``python -m tests.benchmarks revocation [--on=ARRANGEMENT] [CAUSE ...]`` opens 1 000 consoles
(``SESSIONS`` may name another number) of ten machines through API server and poollet, for each
cause anew, and withdraws the right.  The time of a session counts from the moment before the
withdrawal is sent, or from the end of the certificate or token, until its client has the status or
has lost the connection; a row says how many have lost it without a status.

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
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from tests.benchmarks.scale import Opening

from .arrangements import ARRANGEMENTS, Arrangement
from .causes import SESSIONS, Chain, Withdrawal

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0)
_ON = "--on="
_LONGEST_SECONDS = 20.0
_EARLY_SECONDS = 0.1


@dataclass(frozen=True)
class End:
    """
    The end of a session.

    :ivar at: in seconds since 1970.
    :ivar is_told: the client has read the status or the notice.
    """

    at: float
    is_told: bool


def watch(withdrawal: Withdrawal, ends: list[End], ready: Callable[[], None]) -> None:
    """Note when each session has ended: its status or notice has come, or the connection is lost."""
    opened = withdrawal.opened
    selector = selectors.DefaultSelector()
    for each in opened:
        selector.register(each.descriptor, selectors.EVENT_READ, each)
    ready()
    deadline = time.time() + _LONGEST_SECONDS + SESSIONS // 10
    first = 0.0
    while len(ends) < len(opened) and time.time() < deadline:
        for key, _ in selector.select(0.2):
            is_told = read(key.data, withdrawal.signs)
            if is_told is not None:
                ends.append(End(time.time(), is_told))
                first = first or ends[0].at
                selector.unregister(key.fd)
                if not withdrawal.goes_on:
                    key.data.close()
        if first and time.time() > first + _LONGEST_SECONDS:
            break
    selector.close()


def read(session: Opening, signs: Sequence[bytes]) -> bool | None:
    """
    Read what there is.

    :return: ``None`` while the session goes on; else whether the client has read one of the signs.
    """
    assert session.line is not None
    try:
        while data := session.line.recv(65536):
            if any(sign in data for sign in signs):
                return True
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    except OSError:
        pass
    return False


def measure(chain: Chain, cause: str, withdrawal: Withdrawal) -> None:
    """Withdraw the right of open sessions, and print the times."""
    opened = withdrawal.opened
    time.sleep(2)  # lets the reviews of new sessions settle
    ends: list[End] = []
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
    if withdrawal.goes_on and (cut := sum(read(each, ()) is False for each in opened)):
        print(f"{cause:15} {cut} sessions have ended instead of going on")
    for each in opened:
        each.close()
    untold = sum(not end.is_told for end in ends)
    report(cause, sorted(end.at - began for end in ends), len(opened), untold, spent)


def report(
    cause: str, times: Sequence[float], sessions: int, untold: int, cpu: dict[str, float]
) -> None:
    """
    Print a row.

    :param times: of the sessions that have ended, in ascending order.
    :param untold: number of them whose clients have read no status.
    """
    if not times:
        print(f"{cause:15} no session has ended", flush=True)
        return
    p50, p99 = (times[min(len(times) - 1, int(len(times) * part))] for part in (0.5, 0.99))
    missing = f"; {sessions - len(times)} have not ended" if len(times) < sessions else ""
    print(
        f"{cause:15} {len(times)} sessions: p50 {p50:.2f} s, p99 {p99:.2f} s, "
        f"p100 {times[-1]:.2f} s{missing}; {untold} without the reason; CPU "
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

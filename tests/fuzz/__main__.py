"""
``python -m tests.fuzz [SECONDS]``: atheris on all targets, a minute by default.

It ends with 1 as soon as something that must hold does not, and leaves the bytes in
``crash-...`` in the current directory; ``python -m tests.fuzz FILE`` tries them again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_LONGEST_BYTES = 8192
_MEMORY_MIB = 1024
_ONE_RUN_SECONDS = 10


def main(given: str) -> None:
    if os.path.isfile(given):
        from . import targets

        targets.run(Path(given).read_bytes())
        return
    try:
        import atheris
    except ImportError:
        version = ".".join(map(str, sys.version_info[:2]))
        print(f"atheris is not installed for Python {version}: nothing is fuzzed")
        return
    with atheris.instrument_imports(include=["twisted_exec"], enable_loader_override=False):
        from . import targets
        from .seeds import all_seeds

    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(all_seeds()):
            Path(corpus, str(number)).write_bytes(data)
        options = {
            "max_total_time": given,
            "max_len": _LONGEST_BYTES,
            "rss_limit_mb": _MEMORY_MIB,
            "timeout": _ONE_RUN_SECONDS,
            "print_final_stats": 1,
            "verbosity": 0,
        }
        argv = [f"-{name}={value}" for name, value in options.items()]
        atheris.Setup([sys.argv[0], *argv, corpus], targets.run)
        atheris.Fuzz()  # leaves the program with its outcome


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "60")

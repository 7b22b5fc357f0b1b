"""
``python -m twisted_exec.web.vendoring``: build ``page/vendor`` of this installation or checkout.
"""

from __future__ import annotations

import sys

from twisted_exec.web.vendoring.wheel_backend import TARGET, VendoringError, vendor


def main() -> None:
    """Build the files, or explain why that is not possible."""
    try:
        vendor()
    except VendoringError as problem:
        sys.exit(f"{TARGET} was not built: {problem}, and run this again")
    print(f"{TARGET} is complete; restart the server that serves it")


if __name__ == "__main__":
    main()

"""
The user's end: kubectl-console and twisted-exec.
"""

import os

if os.name == "nt":
    # Before any module that Windows lacks is imported.
    raise SystemExit(
        "twisted-exec and kubectl console do not run on Windows: use WSL, or stock kubectl, such as "
        "kubectl attach -it MACHINE"
    )

"""
``exec-mcp``: tools for agents at consoles, by the Model Context Protocol over HTTP.

The program is a client of an API server, as ``twisted-exec mcp`` is, for many users.  Each user has a token for this
program, which stays here: requests to the API server have the program's own credentials, and impersonate the user.
"""

from __future__ import annotations

PROGRAM = "exec-mcp"

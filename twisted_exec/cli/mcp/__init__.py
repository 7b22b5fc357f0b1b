"""
A server of the Model Context Protocol (MCP): tools with which agents use consoles.

The tools act as a user of an API server, with the code of ``kubectl console`` and ``twisted-exec``.  The protocol knows
no transport: :mod:`.stdio` serves one client on a pipe, and ``twisted_exec.mcp`` many over HTTP.
"""

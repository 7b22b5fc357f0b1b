"""
ConsolePolicies and ConsoleRequests: conditions for the use of consoles, and approvals by other users.
"""

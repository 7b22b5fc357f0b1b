"""
The machine broker: a runtime whose machines are another cluster's.

In front it is a runtime like any other, behind it a client of an API server.
"""

"""
The machine broker: a machine runtime whose machines are in another cluster.
"""

PROGRAM = "exec-broker"

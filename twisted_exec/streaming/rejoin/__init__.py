"""
How a hop rejoins the stream of a stock client (:mod:`twisted_exec.wire.rejoin`).

The transport at the machine's end is in :mod:`twisted_exec.streaming.rejoinable_transport`.
"""

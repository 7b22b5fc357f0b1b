"""
The machine broker: a machine runtime whose machines are in another cluster.

Poollets use it like any other runtime; towards the other cluster it is a client of the API server.
"""

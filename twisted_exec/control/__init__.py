"""
The parts of controllers: queues, loops, back-off, listeners, work that can be stopped, and attempts
to reach a lost server.

They know no objects and no connections: a controller gives them keys, coroutines and a clock.
"""

"""
The parts of controllers: queues, loops, back-off, listeners, and work that can be stopped.

They know no objects and no connections: a controller gives them keys, coroutines and a clock.
"""

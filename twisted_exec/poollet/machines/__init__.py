"""
The Machines of the pool: a pure plan for each, the actions it consists of, and the loop that carries them out.
"""

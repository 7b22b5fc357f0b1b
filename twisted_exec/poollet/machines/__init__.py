"""
The Machines of the pool: a pure plan for each, its actions, and the loop that carries them out.
"""

"""
The controller of Spaces: a pure plan for one Space, the worker that carries it out, and the loop
over all of them.
"""

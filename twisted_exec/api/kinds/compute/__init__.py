"""
The kinds of the API group ``compute``: machines, their pools and classes.
"""

"""
A store whose process was replaced: the former process goes on with it through its successor.
"""

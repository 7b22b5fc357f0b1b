"""
Parts of programs under twistd.
"""

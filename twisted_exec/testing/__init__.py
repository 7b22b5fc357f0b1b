"""
Test doubles, for this project and for applications that embed it.
"""

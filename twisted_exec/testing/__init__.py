"""
Doubles we ship: for tests of this project and of its users.
"""

"""
Versioned objects behind one door.
"""

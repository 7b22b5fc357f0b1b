"""
Stores of versioned objects behind one interface.
"""

"""
ConsoleSession objects of the sessions at the consoles of this control plane.
"""

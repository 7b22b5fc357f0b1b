"""
ConsoleSession objects, which show the sessions at the consoles of this control plane.
"""

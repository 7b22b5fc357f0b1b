"""
Screens: a console's output as a terminal would show it, in text, JSON, SVG or escape sequences.
"""

"""
``kubectl console --tiled``: the screens of many machines side by side.

The machines' runtimes render the screens (:mod:`twisted_exec.screens`), so they are exact, whatever
was printed before, and a machine that prints without end costs no more than any other.  The program
fetches only the screens of the present page.
"""

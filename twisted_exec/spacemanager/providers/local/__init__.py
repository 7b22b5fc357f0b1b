"""Provider ``local``: spaces that are processes on this host."""

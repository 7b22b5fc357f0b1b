"""The controller of Spaces: a plan for one Space, the worker for one Space, and the loop over all."""

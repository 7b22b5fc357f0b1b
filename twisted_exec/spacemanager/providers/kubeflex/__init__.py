"""
Provider ``kubeflex``: ControlPlane objects of KubeFlex.
"""

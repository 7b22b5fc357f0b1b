"""
Tests.  They mirror the package; ``python -m twisted.trial tests`` and pytest run the same.
"""

import os

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile(
    "random", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# Two runs of one tree try the same examples.  HYPOTHESIS_PROFILE=random looks for new ones.
settings.register_profile("same", settings.get_profile("random"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

"""Settings for all tests."""

import os

from hypothesis import HealthCheck, settings

# There is no GPU here: Triton's kernels run in its interpreter. It must be told before they are read.
os.environ["TRITON_INTERPRET"] = "1"

# Machines are shared and slow at times: no deadline. In CI the same examples every time.
settings.register_profile(
    "attemper",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("attemper")

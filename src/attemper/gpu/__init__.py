"""The sums of the kernels on torch tensors, where the logits already are.

Logits are read once per pass and never copied in full: `fused` reads them in one Triton kernel per pass, `plain` in
chunks where there is no Triton. Both give what `rows` and `table` need of each row, in float64; NumPy's kernels are
their oracle. Nothing here is imported before a tensor on a GPU comes in.
"""

from attemper.gpu.rows import DeviceRows
from attemper.gpu.table import tabulate

__all__ = ["DeviceRows", "tabulate"]

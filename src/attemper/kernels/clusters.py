"""How far rows of the same case go together: the design effect of a mean over them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attemper._typing import Floats, Labels


def case_numbers(ids: ArrayLike) -> Labels:
    """Return the number of the case of each row, from 0, in the order of the ids.

    >>> case_numbers(["b", "a", "b"])
    array([1, 0, 1])
    """
    return np.unique(np.asarray(ids), return_inverse=True)[1].reshape(-1).astype(np.int64, copy=False)


def design_effect(values: Floats, case: Labels, weights: Floats | None = None, *, repeats: bool = False) -> float:
    """Variance of a mean with whole cases drawn, over that with rows drawn; at least 1.

    Of several columns both variances are summed over them. With ``repeats`` a weight of 2 is a row twice, as in a fit;
    otherwise it is one row, as in a metric. NaN where there is one case, or where values do not differ.

    L. Kish, Survey Sampling, 1965; the variance by case is the sandwich of K.-Y. Liang and S. L. Zeger, Longitudinal
    data analysis using generalized linear models, Biometrika 73, 1986.

    >>> round(design_effect(np.array([1.0, 1, 0, 0, 1, 1, 0, 0]), np.array([0, 0, 1, 1, 2, 2, 3, 3])), 2)
    2.33
    """
    w = np.ones(len(values)) if weights is None else weights
    n, m = float(w.sum()) if repeats else float(len(w)), int(case.max()) + 1 if len(case) else 0
    columns = values[:, None] if values.ndim == 1 else values
    apart = columns - (w @ columns) / w.sum()
    alone = float((w if repeats else w * w) @ np.einsum("nd,nd->n", apart, apart))
    size = float((w if repeats else w * w) @ np.einsum("nd,nd->n", columns, columns))
    if m < 2 or n <= 1 or alone <= 1e-24 * size:
        return float("nan")
    sums = np.stack([np.bincount(case, column, m) for column in (apart * w[:, None]).T], axis=1)
    together = float(np.einsum("md,md->", sums, sums)) * m / (m - 1)
    return max(1.0, together / (alone * n / (n - 1)))

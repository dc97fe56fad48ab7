"""Sobol's indices of sensitivity: the scenarios that they need, and what those say.

Saltelli et al. (2010): two samples A and B of n scenarios with d numbers each, and for each number
i the sample A with column i of B, which is called AB_i here.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import ModelError

BATCH = 64  # Bootstrap samples that are made at once, to bound memory.


def pages(A: Float[np.ndarray, "n d"], B: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m d"]:
    """A, B, AB_1, …, AB_d below each other, n (d + 2) rows."""
    n, d = A.shape
    mixed = np.tile(A, (d, 1)).reshape(d, n, d)
    number = np.arange(d)
    mixed[number, :, number] = B.T
    return np.concatenate([A, B, mixed.reshape(d * n, d)])


class Design(NamedTuple):
    """Where in the results of a sweep the samples are.

    - `n`: scenarios in a sample.
    - `labels`: of the numbers, in the order of their pages AB_i.
    """

    n: int
    labels: list[str]


def design_of(results: Any) -> Design:
    """The design by the scenarios that results have as coordinates.

    **Raises** `ModelError` where they are no such design, or not all of it.
    """
    labels, columns = [], []
    for name, x in results.coords.items():
        if name != "scenario" and x.dims[:1] == ("scenario",):
            index = np.ndindex(x.shape[1:])
            labels += [f"{name}{list(i)}" if i else str(name) for i in index]
            columns.append(np.asarray(x).reshape(len(x), -1))
    d = len(labels)
    n, left = divmod(results.sizes["scenario"], d + 2)
    wrong = ModelError(
        f"sobol_indices: these {results.sizes['scenario']} scenarios of {d} numbers are not all of "
        "those that distributions.saltelli made"
    )
    if d < 2 or n < 2 or left:
        raise wrong
    A, B, *mixed = np.concatenate(columns, axis=1).reshape(d + 2, n, d)
    # Of which number a page is, its values say: files may have the coordinates in another order.
    changed = [np.flatnonzero(np.any(page != A, axis=0)) for page in mixed]
    order = [int(i) for found in changed for i in found]
    if sorted(order) != list(range(d)) or any(found.size != 1 for found in changed):
        raise wrong
    if any(np.any(page[:, i] != B[:, i]) for page, i in zip(mixed, order, strict=True)):
        raise wrong
    return Design(n, [labels[i] for i in order])


def indices(f: Float[np.ndarray, "pages n s"]) -> Float[np.ndarray, "2 d s"]:
    """First-order and total indices of results at A, B, AB_1, …, AB_d, by SciPy."""
    from scipy.stats import sobol_indices  # Takes a second to load.

    at = {"f_A": f[0].T, "f_B": f[1].T, "f_AB": np.swapaxes(f[2:], 1, 2)}
    found = sobol_indices(func=at, n=f.shape[1])
    return np.stack([x.reshape(-1, len(f) - 2).T for x in (found.first_order, found.total_order)])


def resampled(
    f: Float[np.ndarray, "pages n s"], count: int, seed: int
) -> Float[np.ndarray, "2 d count s"]:
    """The same of bootstrap samples, each n rows drawn with replacement.

    Means over such rows are products with how often each was drawn. SciPy's bootstrap calls the
    estimator for every sample, which for 200 results takes 150 times as long, and takes no seed.
    """
    rng, n = np.random.default_rng(seed), f.shape[1]
    A, B, *mixed = f - np.mean(f[:2], axis=(0, 1))  # Against round-off.
    middle, square = 0.5 * (A + B), 0.5 * (A**2 + B**2)
    parts = []
    for start in range(0, count, BATCH):
        drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=min(BATCH, count - start)) / n
        centre = drawn @ middle
        variance = drawn @ square - centre**2
        # Saltelli et al. (2010), table 2 (b) and (f), as in SciPy.
        first = [drawn @ (B * (AB - A)) - centre * (drawn @ (AB - A)) for AB in mixed]
        total = [0.5 * drawn @ (AB - A) ** 2 for AB in mixed]
        parts.append(np.stack([first, total]) / variance)
    return np.concatenate(parts, axis=2)

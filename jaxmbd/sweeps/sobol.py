"""Sobol's indices of sensitivity: design of scenarios, estimates and bootstrap samples.

Saltelli et al. (2010): two samples A and B of n scenarios with d numbers each, and for each number
i the sample AB_i, which is A with column i of B.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import ModelError

BATCH = 64  # Bootstrap samples drawn at once, to bound memory.


def pages(A: Float[np.ndarray, "n d"], B: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m d"]:
    """A, B, AB_1, …, AB_d below each other, n (d + 2) rows."""
    n, d = A.shape
    mixed = np.tile(A, (d, 1)).reshape(d, n, d)
    number = np.arange(d)
    mixed[number, :, number] = B.T
    return np.concatenate([A, B, mixed.reshape(d * n, d)])


class Design(NamedTuple):
    """Layout of the samples in the results of a sweep.

    - `n`: number of scenarios in a sample.
    - `labels`: labels of the numbers, in the order of their pages AB_i.
    """

    n: int
    labels: list[str]


def design_of(results: Any) -> Design:
    """The design, from the scenarios among the coordinates of results.

    **Raises** `ModelError` if scenarios are not such a design, or not all of it.
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
        f"sobol_indices: these {results.sizes['scenario']} scenarios of {d} numbers are not all "
        "scenarios of distributions.saltelli"
    )
    if d < 2 or n < 2 or left:
        raise wrong
    A, B, *mixed = np.concatenate(columns, axis=1).reshape(d + 2, n, d)
    # The number of a page is found from its values: files may reorder coordinates.
    changed = [np.flatnonzero(np.any(page != A, axis=0)) for page in mixed]
    order = [int(i) for columns in changed for i in columns]
    if sorted(order) != list(range(d)) or any(columns.size != 1 for columns in changed):
        raise wrong
    if any(np.any(page[:, i] != B[:, i]) for page, i in zip(mixed, order, strict=True)):
        raise wrong
    return Design(n, [labels[i] for i in order])


def indices(f: Float[np.ndarray, "pages n s"]) -> Float[np.ndarray, "2 d s"]:
    """First-order and total indices of results at A, B, AB_1, …, AB_d, by SciPy."""
    from scipy.stats import sobol_indices  # Takes a second to load.

    at = {"f_A": f[0].T, "f_B": f[1].T, "f_AB": np.swapaxes(f[2:], 1, 2)}
    result = sobol_indices(func=at, n=f.shape[1])
    both = result.first_order, result.total_order
    return np.stack([x.reshape(-1, len(f) - 2).T for x in both])


def resampled(
    f: Float[np.ndarray, "pages n s"], count: int, seed: int
) -> Float[np.ndarray, "2 d count s"]:
    """First-order and total indices of bootstrap samples, each n rows drawn with replacement.

    Means over drawn rows are products with the numbers of draws. SciPy's bootstrap calls the
    estimator for every sample, which takes 150 times as long for 200 results, and has no seed.
    """
    rng, n = np.random.default_rng(seed), f.shape[1]
    A, B, *mixed = f - np.mean(f[:2], axis=(0, 1))  # Reduces round-off.
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

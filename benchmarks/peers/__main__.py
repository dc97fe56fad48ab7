"""jaxmbd beside MuJoCo, MJX, Pinocchio and Exudyn: time, compile time, memory, growth of cost.

    python -m benchmarks.peers [--only SECTION ...] [--quick] [--json FILE] [--out docs/static]

Prints Markdown. Contenders of a table are warmed up and timed in turn, in one process; times are
medians with quartiles. Models are compared first: the suite ends where accelerations or motions
differ. Needs the extra `peers`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ.setdefault("JAX_ENABLE_X64", "1")  # Before modules make arrays.

if __name__ == "__main__":
    # Not above: processes that Exudyn runs in import this file, and need none of it.
    from benchmarks.peers.suite import main

    main()

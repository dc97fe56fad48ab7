"""Batches of states of one robot, moved at once."""

from benchmarks.peers import robots, steps
from benchmarks.peers.protocol import Options, Result, Target, race, ratio
from benchmarks.peers.single import agreed

TITLE = "Batches of robots"
TIMES_MJX = {"Go2": 2.0, "UR5": 50.0, "Panda": 50.0}
TIMES_ROLLOUT = {"UR5": 8.0, "Panda": 8.0, "Go2": 4.0, "Talos": 3.0}


def run(options: Options) -> Result:
    """Every robot."""
    size, n = options.sized(1024, 64), options.sized(50, 5)
    entries, targets = [], []
    for name in robots.FILES:
        robot = agreed(name)
        states = robots.random_states(robot, size)
        found = race(
            TITLE,
            {"robot": name, "batch": size, "steps a call": n},
            [
                steps.own(robot, states, n, "float64", batched=True),
                steps.own(robot, states, n, "float32", batched=True),
                steps.own_in_threads(robot, states, n, "float64"),
                steps.own_in_threads(robot, states, n, "float32"),
                steps.in_rollout(robot, states, n),
                steps.in_mjx(robot, states, n),
            ],
            options.repeats,
        )
        entries += found
        throughput = ratio(found, "mujoco.rollout", "jaxmbd, float64")
        wanted = TIMES_ROLLOUT[name]
        targets.append(Target(f"{name}, batch, times mujoco.rollout", throughput, "≥", wanted))
        if name in TIMES_MJX:
            throughput = ratio(found, "MJX", "jaxmbd, float32")
            wanted = TIMES_MJX[name]
            targets.append(Target(f"{name}, batch, times MJX, float32", throughput, "≥", wanted))
    about = (
        f"{size} states, {n} steps a call, seconds of one step of one of them; jaxmbd and MJX by "
        "`vmap`, jaxmbd also by `vmap` over a share of them in a thread for each core. Generated "
        "code of jaxmbd and `mujoco.rollout` use as many threads as there are cores and keep all "
        "states."
    )
    return Result(TITLE, about, "step", entries, targets, {})

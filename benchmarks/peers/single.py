"""One robot moving: its steps in a loop inside one call, and one step a call."""

from benchmarks.peers import robots, steps
from benchmarks.peers.protocol import Contender, Options, Result, Target, race, ratio

TITLE = "One robot"
AGREE = 1e-6
WITHIN = 1.0  # Times MuJoCo's step.


def agreed(name: str) -> robots.Robot:
    """A robot whose accelerations agree with the peers'; **raises** `ValueError` otherwise."""
    robot = robots.load(name)
    found = robots.disagreement(robot)
    if max(found.values()) > AGREE:
        raise ValueError(f"{name}: accelerations differ from those of the peers: {found}")
    return robot


def run(options: Options) -> Result:
    """Every robot, `n` steps a call and one step a call."""
    n = options.sized(1000, 50)
    entries, targets = [], []
    for name in robots.FILES:
        robot = agreed(name)
        states = robots.random_states(robot, 1)
        state = type(states)(states.q[0], states.v[0])
        found = race(
            TITLE,
            {"robot": name, "steps a call": n},
            [
                steps.own(robot, state, n, "float64"),
                steps.own(robot, state, n, "float32"),
                steps.in_mujoco(robot, states, n),
                steps.in_pinocchio(robot, states, n),
            ],
            options.repeats,
        )
        slower = ratio(found, "jaxmbd, float64", "MuJoCo, mj_step")
        targets.append(Target(f"{name}, step, times MuJoCo's", slower, "≤", WITHIN))
        entries += found
        entries += race(
            TITLE,
            {"robot": name, "steps a call": 1},
            [
                repeated(steps.own(robot, state, 1, "float64"), n),
                repeated(steps.in_mujoco(robot, states, 1), n),
            ],
            options.repeats,
        )
    about = (
        "A step of semi-implicit Euler of 1 ms; of Pinocchio the accelerations alone. One step a "
        "call has the cost of calling from Python in it."
    )
    return Result(TITLE, about, "step", entries, targets, {})


def repeated(contender: Contender, n: int) -> Contender:
    """The same called `n` times."""
    once = contender.run

    def run() -> None:
        for _ in range(n):
            once()

    contender.run, contender.work = run, n * contender.work
    return contender

"""Index-3 generalized-α steps of chains of hinges in maximal coordinates, beside Exudyn."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import jaxmbd as mbd
import scalarjit
from benchmarks.peers.exudyn_chain import Case, Chain
from benchmarks.peers.fits import exponent
from benchmarks.peers.protocol import (
    Contender,
    Options,
    Program,
    Result,
    Target,
    compiled,
    race,
    ratio,
)
from jaxmbd import Frame
from jaxmbd.nonlinear import Newton
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Chains of hinges in maximal coordinates"
STEP, RHO_INF, ANGLE = 1e-3, 0.9, 0.3  # [s], -, [rad]
LENGTHS = (10, 50, 200, 1000)
TIMES_EXUDYN = 4.0
EXPONENT = 1.15
AGREE = 1e-6  # Of the way of the tip; measured 5e-12 to 4e-9 with 10 links.
# Every method makes as many steps a call: modified Newton factors in few of them.
STEPS = 100
AT_ONCE = 64  # Chains of a batch that are moved side by side: their factors stay in the cache.
LIKE_PEER = "jaxmbd, modified Newton to 1e-8"
DEFAULT, JOINT = "jaxmbd", "jaxmbd, joint"
MAXIMAL = mbd.MaximalCoordinates()
WAYS = {DEFAULT: (MAXIMAL, Newton()), LIKE_PEER: (MAXIMAL, Newton(tolerance=1e-8))}
WITH_JOINT = WAYS | {JOINT: (mbd.JointCoordinates(), Newton())}  # What `formulate` chooses.
PEER = "Exudyn"
SETTINGS = {"integrator": f"generalized-α, index 3, rho_inf {RHO_INF}", "step [s]": STEP}
ABOUT = (
    "Steps of 1 ms of the generalized-α method at index 3 with rho_inf 0.9, from the first "
    "accelerations on, which are not counted. Exudyn: Euler parameters, sparse solver of Eigen, "
    "modified Newton, one thread."
)


def chain(n: int) -> mbd.Model:
    """`n` rods of 1 kg and 1 m, one after the other."""
    rod = mbd.inertia.rod(1.0, 1.0)
    tail, head = [-0.5, 0.0, 0.0], [0.5, 0.0, 0.0]
    carriers = [mbd.ground, *(Frame(f"rod{i}", head) for i in range(n - 1))]
    return mbd.Model(
        {f"rod{i}": rod for i in range(n)},
        {
            f"hinge{i}": mbd.joints.Revolute(carrier, Frame(f"rod{i}", tail), [0, 1, 0])
            for i, carrier in enumerate(carriers)
        },
        {"gravity": mbd.forces.Gravity()},
        frames={"tip": Frame(f"rod{n - 1}", head)},
    )


def peer_case(n: int, angle: float = ANGLE) -> Case:
    """The same chain for Exudyn."""
    x, y, z = (float(value) for value in np.diagonal(mbd.inertia.rod(1.0, 1.0).symmetric_inertia()))
    return Case(n, angle, (x, y, z), STEP, RHO_INF)


def first_memory(integrator: mbd.GeneralizedAlpha, system: AbstractSystem, state: mbd.State) -> Any:
    """Accelerations at the start and what else the first step needs; not counted."""
    return integrator.start(system, jnp.zeros(()), jnp.asarray(STEP), state)


def advanced(
    integrator: mbd.GeneralizedAlpha,
    system: AbstractSystem,
    state: mbd.State,
    memory: Any,
    n: Int[Array, ""],
) -> mbd.State:
    """The state after `n` steps, as many as are asked for at run time; compiled as `rollout` is."""

    def run(system: AbstractSystem, state: mbd.State, memory: Any, n: Array) -> mbd.State:
        def step(k: Array, carry: tuple[mbd.State, Any]) -> tuple[mbd.State, Any]:
            t = k * STEP
            return integrator.advance(system, t, t + STEP, *carry)

        return jax.lax.fori_loop(0, n, step, (state, memory))[0]

    args = system.prepared(), state, memory, n
    return scalarjit.native_or_traced(run, *args, most=integrator.longest_code())(*args)


class Own(NamedTuple):
    """jaxmbd on a chain, or on several at once."""

    name: str
    program: Program
    system: AbstractSystem
    state: mbd.State
    memory: Any
    settings: dict[str, Any]

    def after(self, n_steps: int) -> mbd.State:
        """The state after some steps; **raises** `FloatingPointError` where there is none."""
        end = self.program(self.system, self.state, self.memory, jnp.array(n_steps))
        if not jnp.all(jnp.isfinite(end.q)):
            raise FloatingPointError(f"{self.name}: a step of {self.state.q.shape} failed")
        return end

    def tip(self, n_steps: int) -> Float[np.ndarray, "3"]:
        """Final position of the tip of one chain [m]."""
        end = self.after(n_steps)
        return np.asarray(self.system.frames(n_steps * STEP, end.q)["tip"].p)

    def contender(self, n_steps: int, chains: int = 1) -> Contender:
        """So many steps of so many chains in a call."""
        args = self.system, self.state, self.memory, jnp.array(n_steps)
        work = n_steps * chains
        return self.program.contender(self.name, *args, work=work, settings=self.settings)


def own(name: str, n: int, angles: Float[np.ndarray, "m"] | None = None) -> Own:
    """A chain, or several that differ in the angle of their first hinge."""
    formulation, newton = WITH_JOINT[name]
    system = mbd.formulate(chain(n), formulation)
    integrator = mbd.GeneralizedAlpha(RHO_INF, newton=newton)
    batched = angles is not None
    starts = jnp.array(angles) if batched else jnp.array([ANGLE])
    states = jax.vmap(lambda angle: mbd.assemble(system, {"hinge0": angle}))(starts)
    state = states if batched else jax.tree.map(lambda x: x[0], states)

    def start(system: AbstractSystem, state: mbd.State) -> Any:
        one = lambda state: first_memory(integrator, system, state)  # noqa: E731
        return (jax.vmap(one) if batched else one)(state)

    def steps(system: AbstractSystem, state: mbd.State, memory: Any, n: Array) -> mbd.State:
        one = lambda x: advanced(integrator, system, *x, n)  # noqa: E731
        if not batched:
            return one((state, memory))
        count = len(state.q)
        size = math.gcd(count, AT_ONCE)
        # `batch_size` of `jax.lax.map` fails for arrays without entries, such as no states.
        parts = jax.tree.map(
            lambda x: x.reshape(count // size, size, *x.shape[1:]), (state, memory)
        )
        ends = jax.lax.map(jax.vmap(one), parts)
        return jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), ends)

    memory = jax.block_until_ready(eqx.filter_jit(start)(system, state))
    settings = SETTINGS | {"tolerance": newton.tolerance or "default"}
    program = compiled(steps, system, state, memory, jnp.array(1))
    return Own(name, program, system, state, memory, settings)


def peer(n: int, n_steps: int) -> tuple[Contender, Chain]:
    """Exudyn on one chain."""
    other = Chain(peer_case(n))
    settings = SETTINGS | {"tolerance": 1e-8, "dtype": "float64", "threads": 1}
    contender = Contender(
        PEER, other.run, n_steps, settings, prepare=lambda: other.prepare(n_steps)
    )
    return contender, other


def disagreement(mine: Own, other: Chain, n_steps: int) -> float:
    """Distance of the final tips, relative to their displacements."""
    start = mine.system.frames(0.0, mine.state.q)["tip"].p
    other.prepare(n_steps)
    other.run()
    own_end, end = mine.tip(n_steps), other.finish()
    return float(np.linalg.norm(own_end - end) / np.linalg.norm(own_end - np.asarray(start)))


def run(options: Options) -> Result:
    """Every length."""
    entries, targets, costs = [], [], {name: {} for name in (*WAYS, PEER)}
    n_steps = options.sized(STEPS, 10)
    for n in LENGTHS[: 2 if options.quick else None]:
        mine = [own(name, n) for name in WAYS]
        contender, other = peer(n, n_steps)
        off = max(disagreement(one, other, n_steps) for one in mine)
        if off > AGREE:
            raise ValueError(f"{n} links: the tip ends {off:.1e} of its way from Exudyn's")
        case = {"links": n, "steps a call": n_steps}
        found = race(
            TITLE, case, [*(one.contender(n_steps) for one in mine), contender], options.repeats
        )
        entries += found
        for entry in found:
            costs[entry.name][n] = entry.median
        times = ratio(found, PEER, DEFAULT)
        targets.append(Target(f"{n} links, times Exudyn", times, "≥", TIMES_EXUDYN))
    fits = {name: exponent({n: t for n, t in of.items() if n >= 50}) for name, of in costs.items()}
    if len(costs[LIKE_PEER]) > 2:
        worst = max(fits[name] for name in WAYS)
        targets.append(Target("exponent of a step, from 50 links", worst, "≤", EXPONENT))
    return Result(TITLE, ABOUT, "step", entries, targets, fits)

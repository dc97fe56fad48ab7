"""One robot's steps by each contender.

A step is semi-implicit Euler, which is what MuJoCo calls Euler: accelerations, then velocities,
then coordinates displaced by the new velocities. All make the same number of accelerations. jaxmbd
steps the twist of a floating base along its own axes, MuJoCo along the world's: ends differ by the
method's error there, and by rounding with a fixed base.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin
from mujoco.rollout import Rollout

import jaxmbd as mbd
from benchmarks.peers.protocol import ENOUGH, Contender, compiled, seconds
from benchmarks.peers.robots import STEP, Robot, mujoco_states
from jaxmbd.system.abstract import AbstractSystem

SETTINGS = {"integrator": "semi-implicit Euler", "step [s]": STEP}
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def semi_implicit(system: AbstractSystem, state: mbd.State, n: int) -> mbd.State:
    """The states after each of `n` steps."""
    return mbd.rollout(system, state, STEP, n, mbd.SemiImplicitEuler())


def semi_implicit_batch(system: AbstractSystem, states: mbd.State, n: int) -> mbd.State:
    """The same of many states by `vmap`, as `mujoco.rollout` keeps them too."""
    return jax.vmap(lambda state: semi_implicit(system, state, n))(states)


def cast(tree: Any, dtype: Any) -> Any:
    """The same with every floating-point number of another type."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


def own(robot: Robot, state: mbd.State, n: int, dtype: Any, batched: bool = False) -> Contender:
    """jaxmbd: `n` steps of one state, or of a batch."""

    def run(system: AbstractSystem, state: mbd.State) -> mbd.State:
        return (semi_implicit_batch if batched else semi_implicit)(system, state, n)

    dtype = np.dtype(dtype)
    with jax.enable_x64(dtype == np.float64):
        work = n * (state.q.shape[0] if batched else 1)
        name = f"jaxmbd, {dtype.name}"
        args = cast((robot.system, state), dtype)
        return compiled(run, *args).contender(name, *args, work=work, settings=SETTINGS)


def own_in_threads(robot: Robot, states: mbd.State, n: int, dtype: Any) -> Contender:
    """jaxmbd: `vmap` over a share of the states in a thread for each core."""

    dtype = np.dtype(dtype)
    with jax.enable_x64(dtype == np.float64):
        system, states = cast((robot.system, states), dtype)
        share = len(states.q) // THREADS
        starts = range(0, share * THREADS, share)
        parts = [jax.tree.map(lambda x, k=k: x[k : k + share], states) for k in starts]
        program = compiled(partial(semi_implicit_batch, n=n), system, parts[0])
        settings = SETTINGS | {"dtype": dtype.name, "threads": THREADS}
        pool = ThreadPoolExecutor(THREADS)

        def work() -> list[mbd.State]:
            return list(pool.map(lambda part: program(system, part), parts))

        name = f"jaxmbd, {dtype.name}, {THREADS} threads"
        return Contender(
            name, work, n * share * THREADS, settings, program.compiling, program.memory
        )


def in_mujoco(robot: Robot, states: mbd.State, n: int) -> Contender:
    """`mj_step` in C, `n` steps a call, from the first of some states."""
    model, data = robot.mujoco, mujoco.MjData(robot.mujoco)
    (qpos, *_), (qvel, *_) = mujoco_states(robot, states)

    def run() -> mujoco.MjData:
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_step(model, data, nstep=n)
        return data

    settings = SETTINGS | {"dtype": "float64", "threads": 1}
    return Contender("MuJoCo, mj_step", run, n, settings, memory=int(data.nbuffer))


def called_in_pinocchio(
    name: str, function: Callable[..., Any], robot: Robot, states: mbd.State, n: int
) -> Contender:
    """A function of the first of some states and of forces of zero, `n` times from Python."""
    model, data = robot.pinocchio, robot.pinocchio.createData()
    in_q, in_v = robot.to_pinocchio
    q, v = np.asarray(states.q)[0, in_q], np.asarray(states.v)[0, in_v]
    zeros = np.zeros(model.nv)

    def run() -> None:
        for _ in range(n):
            function(model, data, q, v, zeros)

    return Contender(name, run, n, {"dtype": "float64", "threads": 1})


def in_pinocchio(robot: Robot, states: mbd.State, n: int) -> Contender:
    """`aba`, accelerations alone."""
    return called_in_pinocchio("Pinocchio, aba alone", pin.aba, robot, states, n)


def in_rollout(robot: Robot, states: mbd.State, n: int) -> Contender:
    """`mujoco.rollout` on all cores, into arrays that are there already."""
    model = robot.mujoco
    full = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
    size = mujoco.mj_stateSize(model, full)
    start = np.zeros((len(states.q), size))
    data = mujoco.MjData(model)
    for row, qpos, qvel in zip(start, *mujoco_states(robot, states), strict=True):
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_getState(model, data, row, full)
    each = [mujoco.MjData(model) for _ in range(THREADS)]
    pool = Rollout(nthread=THREADS)
    kept, sensors = np.zeros((len(start), n, size)), np.zeros((len(start), n, model.nsensordata))

    def run() -> np.ndarray:
        pool.rollout(model, each, start, nstep=n, state=kept, sensordata=sensors)
        return kept

    settings = SETTINGS | {"dtype": "float64", "threads": THREADS}
    return Contender("mujoco.rollout", run, n * len(start), settings, memory=kept.nbytes)


def in_mjx(robot: Robot, states: mbd.State, n: int) -> Contender:
    """MJX, float32, the same batch in one `vmap`; fewer steps where they would take too long."""
    with redirect_stdout(sys.stderr):  # Where it reports back ends that are not installed.
        from mujoco import mjx

    with jax.enable_x64(False):
        model = mjx.put_model(robot.mujoco)
        qpos, qvel = (jnp.asarray(x, jnp.float32) for x in mujoco_states(robot, states))
        blank = mjx.make_data(robot.mujoco)

        def run(
            model: Any, qpos: jax.Array, qvel: jax.Array, n: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            def one(qpos: jax.Array, qvel: jax.Array) -> tuple[jax.Array, jax.Array]:
                first = blank.replace(qpos=qpos, qvel=qvel)
                end = jax.lax.fori_loop(0, n, lambda _, data: mjx.step(model, data), first)
                return end.qpos, end.qvel

            return jax.vmap(one)(qpos, qvel)

        args = model, qpos, qvel
        program = compiled(run, *args, jnp.asarray(1))
        once = seconds(lambda: program(*args, jnp.asarray(1)))
        n = max(1, min(n, int(0.5 * ENOUGH / once)))
        return program.contender(
            "MJX", *args, jnp.asarray(n), work=n * len(states.q), settings=SETTINGS
        )

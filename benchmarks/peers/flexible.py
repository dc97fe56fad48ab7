"""Steps of flexible bodies beside Exudyn: a rod with modes, 256 variants of it, and a cable."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import skfem
from jaxtyping import Array, Float
from skfem.models.elasticity import lame_parameters, linear_elasticity

import jaxmbd as mbd
from benchmarks.peers.chain_batches import Workers
from benchmarks.peers.chains import (
    PEER,
    RHO_INF,
    SETTINGS,
    STEP,
    advanced,
    first_memory,
)
from benchmarks.peers.exudyn_flexible import Pendulum, RodPendulum, Rope, RopePendulum, Solid
from benchmarks.peers.protocol import (
    Contender,
    Entry,
    Options,
    Program,
    Result,
    Target,
    compiled,
    race,
    ratio,
)
from benchmarks.peers.steps import THREADS
from jaxmbd import Frame
from jaxmbd.nonlinear import Newton
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Flexible bodies"
STEPS, SIZE = 200, 256
# On a shorter way errors of the meshes and of Newton's method would not be small beside it.
FEWEST = 100
ANGLE, FACTOR = 0.3, 1.0
# Normal modes beside the six static shapes of the second interface.
NORMAL = (4, 10, 14)
ROPE = Rope(2.0, 1e4, 0.05, 0.5, 8)
# Of the way of the tip: rods have the same modes, and interfaces turn by small rotations.
AGREE = {"rod": 1e-5, "rope": 1e-4}
FULL, LIKE_PEER = Newton(chord=False), Newton(tolerance=1e-8)
MAXIMAL, JOINT = mbd.MaximalCoordinates(), mbd.JointCoordinates()
WAYS = {
    "jaxmbd, maximal": (MAXIMAL, FULL),
    "jaxmbd, maximal, modified Newton to 1e-8": (MAXIMAL, LIKE_PEER),
    "jaxmbd, joint": (JOINT, FULL),
    "jaxmbd, joint, modified Newton to 1e-8": (JOINT, LIKE_PEER),
}
BEST = "jaxmbd, joint, modified Newton to 1e-8"
PEER_SETTINGS = {"tolerance": 1e-8, "dtype": "float64"}


@cache
def solid(normal: int) -> Solid:
    """A bar of 1000 x 40 x 20 mm of a plastic, in hexahedra, and its modes in a mean-axis frame."""
    mesh = skfem.MeshHex.init_tensor(
        np.linspace(0, 1, 17), np.linspace(-0.02, 0.02, 3), np.linspace(-0.01, 0.01, 3)
    )
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementHex1()))
    stiffness = linear_elasticity(*lame_parameters(2.1e9, 0.3)).assemble(basis)
    mass = skfem.BilinearForm(lambda u, v, w: 1200.0 * sum(u * v)).assemble(basis)
    order = basis.nodal_dofs.T.ravel()
    K, M = (x.toarray()[np.ix_(order, order)] for x in (stiffness, mass))
    x = mesh.p[0]
    base, tip = (np.flatnonzero(np.abs(x - end) < 1e-9).tolist() for end in (0.0, 1.0))
    shapes = mbd.flexible.modes(
        *map(jnp.asarray, (K, M, mesh.p.T)), {"base": base, "tip": tip}, normal, frame="mean-axis"
    )
    return Solid(K, M, mesh.p.T, np.asarray(shapes), base, tip)


@cache
def rod(normal: int) -> mbd.FlexibleBody:
    """The same as a body of jaxmbd, with the same modes."""
    given = solid(normal)
    ends = {"base": given.base, "tip": given.tip}
    return mbd.flexible.reduce(given.K, given.M, given.positions, ends, normal, basis=given.shapes)


def pendulum(body: Any) -> mbd.Model:
    """A body on a hinge under gravity."""
    return mbd.Model(
        {"body": body},
        {"hinge": mbd.joints.Revolute("ground", Frame("body", node="base"), [0, 1, 0])},
        {"gravity": mbd.forces.Gravity()},
        frames={"tip": Frame("body", node="tip")},
    )


def cable() -> mbd.bodies.ANCFCable:
    """The cable in jaxmbd."""
    length, EA, EI, mass, n = ROPE
    return mbd.bodies.ANCFCable(length, EA, EI, mass, n, planar=True)


def system_of(body: Any, factor: Float[Array, ""], formulation: Any) -> AbstractSystem:
    """The pendulum with another stiffness, of a cable against bending."""

    def stiffness(body: Any) -> Array:
        return body.EI if isinstance(body, mbd.bodies.ANCFCable) else body.stiffness

    changed = eqx.tree_at(stiffness, body, factor * stiffness(body))
    return mbd.formulate(pendulum(changed), formulation)


class Own(NamedTuple):
    """jaxmbd on one mechanism, or on variants of it: their angles and factors of stiffness."""

    name: str
    program: Program
    tips: Callable[[Any], Array]
    args: tuple[Any, ...]
    settings: dict[str, Any]

    def tip(self, n_steps: int) -> Float[np.ndarray, "*m 3"]:
        """Final positions of the tip [m]; **raises** `FloatingPointError` where there are none."""
        found = np.asarray(self.tips(self.program(*self.args, jnp.array(n_steps))))
        if not np.isfinite(found).all():
            raise FloatingPointError(f"{self.name}: a step failed")
        return found

    def contender(self, n_steps: int) -> Contender:
        """So many steps in a call."""
        args = *self.args, jnp.array(n_steps)
        return self.program.contender(self.name, *args, work=n_steps, settings=self.settings)


def own(name: str, body: Any, variants: Float[np.ndarray, "*m 2"]) -> Own:
    """A body with an angle and a factor of its stiffness, or several of them."""
    formulation, newton = WAYS[name]
    integrator = mbd.GeneralizedAlpha(RHO_INF, newton=newton)

    def begin(body: Any, variant: Float[Array, "2"]) -> tuple[mbd.State, Any]:
        system = system_of(body, variant[1], formulation)
        state = mbd.assemble(system, {"hinge": variant[0]})
        return state, first_memory(integrator, system, state)

    def steps(body: Any, variant: Array, state: mbd.State, memory: Any, n: Array) -> mbd.State:
        system = system_of(body, variant[1], formulation)
        return advanced(integrator, system, state, memory, n)

    def tip(body: Any, variant: Array, state: mbd.State) -> Float[Array, "3"]:
        return system_of(body, variant[1], formulation).frames(0.0, state.q)["tip"].p

    given = jnp.asarray(variants)
    if given.ndim == 1:
        run = steps
    else:
        begin, tip = jax.vmap(begin, (None, 0)), jax.vmap(tip, (None, 0, 0))

        def run(body: Any, variants: Array, state: mbd.State, memory: Any, n: Array) -> mbd.State:
            return jax.vmap(lambda *args: steps(body, *args, n))(variants, state, memory)

    state, memory = jax.block_until_ready(eqx.filter_jit(begin)(body, given))
    args = body, given, state, memory
    settings = SETTINGS | {"tolerance": newton.tolerance or "20 eps"}
    program = compiled(run, *args, jnp.array(1))
    tips = eqx.filter_jit(tip)
    return Own(name, program, lambda end: tips(body, given, end), args, settings)


def disagreement(mine: Own, other: Pendulum, n_steps: int) -> float:
    """Distance of the final tips, relative to their displacement."""
    other.prepare(1)
    start = other.finish()
    other.prepare(n_steps)
    other.run()
    end = other.finish()
    return float(np.linalg.norm(mine.tip(n_steps) - end) / np.linalg.norm(end - start))


def single(
    kind: str,
    case: dict[str, Any],
    ways: tuple[str, ...],
    body: Any,
    other: Pendulum,
    options: Options,
) -> list[Entry]:
    """One mechanism; **raises** `ValueError` if the motions differ."""
    n_steps = options.sized(STEPS, FEWEST)
    mine = [own(name, body, np.array([ANGLE, FACTOR])) for name in ways]
    off = max(disagreement(one, other, n_steps) for one in mine)
    if off > AGREE[kind]:
        raise ValueError(f"{case}: the tip ends {off:.1e} of its way from Exudyn's")
    peer = Contender(
        PEER,
        other.run,
        n_steps,
        PEER_SETTINGS | {"threads": 1},
        prepare=lambda: other.prepare(n_steps),
    )
    case = case | {"off by": f"{off:.1e}", "steps a call": n_steps}
    return race(TITLE, case, [*(one.contender(n_steps) for one in mine), peer], options.repeats)


# What a process keeps between calls.
_own: list[Own] = []
_peers: list[RodPendulum] = []


def _variants(size: int) -> Float[np.ndarray, "m 2"]:
    return np.stack([np.linspace(0.1, 1.0, size), np.linspace(0.5, 2.0, size)], axis=1)


def _build(normal: int, variants: Float[np.ndarray, "m 2"]) -> tuple[float, int | None]:
    """Seconds of compiling, and bytes of memory."""
    _own[:] = [own(BEST, rod(normal), variants)]
    return _own[0].program.compiling, _own[0].program.memory


def _move(n_steps: int, variants: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "m 3"]:
    return _own[0].tip(n_steps)


def _prepare_peer(normal: int, n_steps: int, variants: Float[np.ndarray, "m 2"]) -> None:
    if not _peers:
        _peers.extend(RodPendulum(solid(normal), *map(float, x), STEP, RHO_INF) for x in variants)
    for one in _peers:
        one.prepare(n_steps)


def _move_peer(variants: Float[np.ndarray, "m 2"]) -> None:
    for one in _peers:
        one.run()


def _ends_of_peer(variants: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "m 3"]:
    return np.stack([one.finish() for one in _peers])


def batch(normal: int, options: Options) -> list[Entry]:
    """Variants of the rod, a share of them in a process for each core."""
    size, n_steps = options.sized(SIZE, 16), options.sized(STEPS, 20)
    with Workers(_variants(size)) as workers:
        compiling, memory = max(workers.each(_build, normal))
        workers.each(_prepare_peer, normal, n_steps)
        workers.each(_move_peer)
        ends = np.concatenate(workers.each(_ends_of_peer))
        off = np.abs(np.concatenate(workers.each(_move, n_steps)) - ends).max()
        if off > AGREE["rod"]:
            raise ValueError(f"variants: a tip ends {off:.1e} m from Exudyn's")
        settings = SETTINGS | PEER_SETTINGS | {"processes": THREADS}
        mine = Contender(
            f"{BEST}, vmap",
            lambda: workers.each(_move, n_steps),
            size * n_steps,
            settings,
            compiling,
            memory,
        )
        other = Contender(
            PEER,
            lambda: workers.each(_move_peer),
            size * n_steps,
            PEER_SETTINGS | {"processes": THREADS},
            prepare=lambda: workers.each(_prepare_peer, normal, n_steps),
        )
        modes = {"body": "rod", "modes": 6 + normal, "batch": size}
        case = modes | {"off by": f"{off:.1e}", "steps a call": n_steps}
        return race(TITLE, case, [mine, other], options.repeats)


def run(options: Options) -> Result:
    """The rod with different numbers of modes, variants of it, and the cable."""
    entries, targets = [], []
    for normal in NORMAL[:1] if options.quick else NORMAL:
        other = RodPendulum(solid(normal), ANGLE, FACTOR, STEP, RHO_INF)
        case = {"body": "rod", "modes": 6 + normal, "batch": 1}
        ways = tuple(WAYS) if normal == NORMAL[1] else (BEST,)
        found = single("rod", case, ways, rod(normal), other, options)
        entries += found
        times = ratio(found, PEER, BEST)
        targets.append(Target(f"{6 + normal} modes, times Exudyn", times, "≥", 1.0))
    rope = RopePendulum(ROPE, ANGLE, STEP, RHO_INF)
    found = single("rope", {"body": "cable", "batch": 1}, (BEST,), cable(), rope, options)
    entries += found
    found = batch(NORMAL[0] if options.quick else NORMAL[1], options)
    entries += found
    times = ratio(found, PEER, f"{BEST}, vmap")
    targets.append(Target(f"{len(_variants(SIZE))} variants, times Exudyn", times, "≥", 10.0))
    about = (
        "Pendulums on a hinge under gravity, steps of 1 ms of the generalized-α method at index 3 "
        "with rho_inf 0.9. Rod: hexahedra of scikit-fem, reduced to the same modes in both "
        "(`ObjectFFRFreducedOrder`, Euler parameters). Cable: 8 elements (`ObjectANCFCable2D`). "
        "Variants differ in their angle and stiffness; jaxmbd by `vmap`, Exudyn "
        "one after the other, both in a process for each core. `off by`: largest distance of the "
        "tips, relative to their way, for variants in m."
    )
    return Result(TITLE, about, "step", entries, targets, {})


__all__ = ["own", "run"]

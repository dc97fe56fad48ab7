"""Mechanisms of the drill on a GPU, and results of the CPU that it is compared with.

    python -m benchmarks.gpu_cases FILE.npz [--only NAME ...]

writes models, states, and what motions and their gradients are on the CPU. Robots need the extra
`peers`; the drill reads the file and needs no more than jaxmbd.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
import scalarjit
from benchmarks import loops
from benchmarks.chains import chain
from jaxmbd import contact, forces

STATES, STEPS, H = 64, 100, 1e-3
TYPES = {"float32": jnp.float32, "float64": jnp.float64}
FEET, RADIUS = tuple(f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")), 0.022


def _four_bar() -> mbd.Model:
    return loops.four_bar(*loops.LINKAGES["a = 0.2, b = 0.5, c = 0.45, d = 0.6 m"])


def _robot(name: str) -> mbd.Model:
    from benchmarks.peers import robots

    return robots.model_of(name)


def _go2_on_ground() -> mbd.Model:
    """Go2, its four feet balls on a plane."""
    from benchmarks.peers import robots

    path, _ = robots.path_of("Go2")
    model = mbd.io.from_urdf(path, floating_base=True)
    laws = contact.HuntCrossley(3e4, 0.5, 1.0), contact.Coulomb(0.8)
    ground = contact.HalfSpace("ground")
    feet = {x: forces.Contact(contact.Sphere(model.frames[x], RADIUS), ground, *laws) for x in FEET}
    gravity = {"gravity": model.forces["gravity"]}
    return eqx.tree_at(lambda m: m.forces, model, gravity | feet)


MODELS: dict[str, Callable[[], mbd.Model]] = {
    "double pendulum": lambda: chain(2),
    "UR5": lambda: _robot("UR5"),
    "four-bar": _four_bar,
    "Panda": lambda: _robot("Panda"),
    "chain 10": lambda: chain(10),
    "Go2": lambda: _robot("Go2"),
    "Go2 on the ground": _go2_on_ground,
}


class Case(NamedTuple):
    """A mechanism, states `(64, n)` in double precision, and results by name of the CPU."""

    name: str
    model: mbd.Model
    q: np.ndarray
    v: np.ndarray
    results: dict[str, np.ndarray]

    def states(self, dtype: Any, count: int) -> mbd.State:
        """`count` states, which repeat the first 64."""
        rows = np.arange(count) % STATES
        q, v = (jnp.asarray(x[rows], dtype) for x in (self.q, self.v))
        return mbd.State(q, v, jnp.zeros((count, 0), dtype))

    def function(self, dtype: Any, what: str, steps: int = STEPS) -> Callable[..., mbd.State]:
        """A function of a batch of states: their `motion`'s ends, or the `gradient` of a sum."""
        system = mbd.formulate(self.model, mbd.JointCoordinates(), dtype=dtype)
        integrator = diffrax.Midpoint() if self.name == "four-bar" else mbd.SemiImplicitEuler()

        def end(state: mbd.State) -> mbd.State:
            states = mbd.rollout(system, state, H, steps, integrator)
            return jax.tree.map(lambda x: x[-1], states)

        def total(state: mbd.State) -> jax.Array:
            last = end(state)
            return jnp.sum(last.q**2) + jnp.sum(last.v**2)

        return jax.vmap(end if what == "motion" else jax.grad(total))


def compiled(case: Case, dtype: Any, what: str, way: str, count: int) -> Any:
    """A function of a batch, compiled: by a `kernel`, an `emulated` one, or `plain` JAX."""
    ways: dict[str, Callable[[], AbstractContextManager]] = {
        "kernel": nullcontext,
        "emulated": scalarjit.emulated_gpu,
        "plain": lambda: scalarjit.enabled(False),
    }
    with ways[way]():
        return jax.jit(case.function(dtype, what)).lower(case.states(dtype, count)).compile()


def random_states(system: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """States displaced by up to 1 rad or m, with rates up to 1 rad/s; numbers of float32."""
    rng = np.random.default_rng(0)
    if name == "four-bar":
        state = mbd.assemble(system, {"A": 1.0, "B": -1.0, "D": 1.0}, {"A": 10.0}, hold=["A"])
        scale = np.linspace(0.5, 1.5, STATES)[:, None]
        q, v = np.tile(state.q, (STATES, 1)), scale * np.asarray(state.v)
    else:
        zero = mbd.assemble(system, {}).q
        moved, rates = rng.uniform(-1.0, 1.0, (2, STATES, system.nv))
        q = jax.vmap(lambda dv: system.retract(zero, dv))(jnp.asarray(moved))
        v = rates
    return (np.asarray(np.asarray(x, np.float32), float) for x in (q, v))  # pyright: ignore


def reference(name: str, programs: Iterable[str] = ("motion", "gradient")) -> dict[str, np.ndarray]:
    """States of a mechanism, and its results on the CPU, by their names in the file."""
    model = MODELS[name]()
    q, v = random_states(mbd.formulate(model, mbd.JointCoordinates()), name)
    case, found = Case(name, model, q, v, {}), {"q": q, "v": v}
    for what in programs:
        for kind, dtype in TYPES.items():
            for way in ("kernel", "emulated") if kind == "float64" else ("emulated",):
                try:
                    run = compiled(case, dtype, what, way, STATES)
                except Exception as error:
                    print(f"{name}, {what}, {kind}, {way}: {error}", flush=True)
                    continue
                end = run(case.states(dtype, STATES))
                for key in "qv":
                    own = "cpu" if way == "kernel" else "emulated"
                    found[f"{what}/{kind}/{own}/{key}"] = np.asarray(getattr(end, key))
    return found


def write(
    path: Path, names: Iterable[str], programs: Iterable[str] = ("motion", "gradient")
) -> None:
    """Write the file."""
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        began = time.perf_counter()
        found = reference(name, programs)
        with tempfile.TemporaryDirectory() as folder:
            mbd.io.save_model(MODELS[name](), Path(folder) / "model.json")
            text = (Path(folder) / "model.json").read_bytes()
        arrays |= {f"{name}/{key}": x for key, x in found.items()}
        arrays[f"{name}/model"] = np.frombuffer(text, np.uint8)
        np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def read(path: Path) -> dict[str, Case]:
    """Mechanisms of a file."""
    cases = {}
    with np.load(path) as arrays, tempfile.TemporaryDirectory() as folder:
        for name in dict.fromkeys(key.split("/")[0] for key in arrays):
            own = {k.split("/", 1)[1]: arrays[k] for k in arrays if k.startswith(f"{name}/")}
            text = Path(folder) / "model.json"
            text.write_bytes(own.pop("model").tobytes())
            cases[name] = Case(name, mbd.io.load_model(text), own.pop("q"), own.pop("v"), own)
    return cases


def single_precision(cases: dict[str, Case]) -> list[str]:
    """Errors of float32 against float64 after all steps, as rows of Markdown."""
    rows = ["| | coordinates | velocities | gradient |", "|---|---|---|---|"]
    for case in cases.values():
        errors = []
        for what, key in (("motion", "q"), ("motion", "v"), ("gradient", "v")):
            single = case.results.get(f"{what}/float32/emulated/{key}")
            double = case.results.get(f"{what}/float64/cpu/{key}")
            if single is None or double is None:
                errors.append("–")
                continue
            errors.append(f"{np.max(np.abs(single - double)) / np.max(np.abs(double)):.1e}")
        rows.append(f"| {case.name} | {' | '.join(errors)} |")
    return rows


def main() -> None:
    """Write a file, and print how precise float32 is."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    write(arguments.file, arguments.only)
    print("\n".join(single_precision(read(arguments.file))))


if __name__ == "__main__":
    main()

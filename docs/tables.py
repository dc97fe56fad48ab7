"""Tables of the documentation, made from what the classes say about themselves."""

import inspect
from collections.abc import Iterable
from typing import Any

import diffrax

import jaxmbd as mbd
from jaxmbd import integrators
from jaxmbd.extend import AbstractFormulation
from jaxmbd.system.constraints import n_constraints


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Markdown."""
    lines = [list(header), ["---"] * len(list(header)), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rod(length: float) -> mbd.RigidBody:
    """Its frame at one end."""
    return mbd.inertia.shifted(mbd.inertia.rod(1.0, length), [length / 2, 0, 0])


def double_pendulum() -> mbd.Model:
    """Two hinges in a row."""
    return mbd.Model(
        bodies={"upper": rod(1.0), "lower": rod(1.0)},
        joints={
            "shoulder": mbd.joints.Revolute(mbd.ground, "upper"),
            "elbow": mbd.joints.Revolute(mbd.Frame("upper", [1, 0, 0]), "lower"),
        },
    )


def four_bar() -> mbd.Model:
    """Two hinges to the ground, a ball and a cross joint: one loop, without redundant rows."""
    return mbd.Model(
        bodies={"crank": rod(0.5), "coupler": rod(2.0), "rocker": rod(1.5)},
        joints={
            "a": mbd.joints.Revolute(mbd.ground, "crank"),
            "b": mbd.joints.Universal(mbd.Frame("crank", [0.5, 0, 0]), "coupler"),
            "c": mbd.joints.Spherical(
                mbd.Frame("coupler", [2, 0, 0]), mbd.Frame("rocker", [1.5, 0, 0])
            ),
            "d": mbd.joints.Revolute(mbd.Frame("ground", [2, 0, 0]), "rocker"),
        },
    )


def formulations() -> dict[str, Any]:
    """One of every kind that `formulate` knows."""
    public = (getattr(mbd, name) for name in mbd.__all__)
    kinds = [x for x in public if isinstance(x, type) and issubclass(x, AbstractFormulation)]
    given = {mbd.VelocityTransformation: (mbd.MaximalCoordinates(),)}
    return {kind.__name__: kind(*given.get(kind, ())) for kind in kinds}


def traits() -> str:
    """Table of traits of the systems of each formulation, with sizes of two small mechanisms."""
    rows = []
    for name, formulation in formulations().items():
        small, closed = (
            mbd.formulate(model(), formulation) for model in (double_pendulum, four_bar)
        )
        sizes = [f"{system.nq}, {system.nv}, {n_constraints(system)}" for system in (small, closed)]
        rows.append(
            [
                f"`{name}`",
                "constant" if small.constant_mass else "M(q)",
                "yes" if small.absolute else "no",
                *sizes,
            ]
        )
    header = ["formulation", "mass matrix", "poses of all bodies"]
    header += ["double pendulum", "four-bar linkage"]
    header[-2:] = [f"{name}: entries of q, v, g" for name in header[-2:]]
    return table(header, rows)


def compatibility() -> str:
    """Table of the systems that each integrator accepts, from the integrators' own checks."""
    systems = {
        name: [mbd.formulate(model(), formulation) for model in (double_pendulum, four_bar)]
        for name, formulation in formulations().items()
    }
    kinds = [getattr(integrators, name) for name in integrators.__all__]
    kinds = [kind for kind in kinds if issubclass(kind, integrators.AbstractIntegrator)]
    kinds = [kind for kind in kinds if not inspect.isabstract(kind)]
    rows = []
    for name, (tree, loop) in systems.items():
        row = [f"`{name}`"]
        for kind in kinds:
            row.append(
                "yes" if accepts(kind(), loop) else "trees" if accepts(kind(), tree) else "no"
            )
        rows.append(row)
    return table(["", *(f"`{kind.__name__}`" for kind in kinds)], rows)


def accepts(integrator: Any, system: Any) -> bool:
    """True if the integrator can advance the system."""
    try:
        integrator.check(system)
    except mbd.IncompatibleIntegrator:
        return False
    return True


def solvers() -> tuple[list[diffrax.AbstractSolver], list[str]]:
    """diffrax's solvers that `ExplicitRK` takes, and the names of those that it refuses."""
    taken, refused = [], []
    for name, kind in sorted(vars(diffrax).items()):
        is_solver = inspect.isclass(kind) and issubclass(kind, diffrax.AbstractSolver)
        if not is_solver or inspect.isabstract(kind) or name.startswith("Abstract"):
            continue
        if kind is diffrax.HalfSolver:  # A wrapper around another one.
            continue
        try:
            taken.append(mbd.ExplicitRK(kind()).solver)
        except mbd.IncompatibleIntegrator:
            refused.append(f"`{name}`")
    return taken, refused


def methods() -> str:
    """The methods of diffrax that move a system, and those that do not."""
    taken, refused = solvers()
    term = diffrax.ODETerm(lambda t, y, args: y)
    rows = []
    for solver in sorted(taken, key=lambda s: isinstance(s, diffrax.AbstractImplicitSolver)):
        implicit = isinstance(solver, diffrax.AbstractImplicitSolver)
        adaptive = isinstance(solver, diffrax.AbstractAdaptiveSolver)
        rows.append(
            [
                f"`diffrax.{type(solver).__name__}`",
                str(solver.order(term)),
                "implicit" if implicit else "explicit",
                "yes" if adaptive else "no, fixed steps",
            ]
        )
    header = ["method", "order", "kind", "error estimate"]
    return (
        f"{table(header, rows)}\n`ExplicitRK` rejects solvers that split an equation or are for "
        f"stochastic equations: {', '.join(refused)}.\n"
    )


def write_all(folder) -> None:
    """Write every table as a file to include."""
    folder.mkdir(exist_ok=True)
    for make in (traits, compatibility, methods):
        (folder / f"{make.__name__}.md").write_text(make(), encoding="utf-8")

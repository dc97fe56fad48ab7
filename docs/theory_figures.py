"""Figures of the pages on formulations and integrators.

    python docs/theory_figures.py

Each figure is drawn from closed forms or small matrices, in seconds.
"""

from pathlib import Path

import diffrax
import numpy as np
from matplotlib.figure import Figure
from scipy.interpolate import BarycentricInterpolator

FOLDER = Path(__file__).resolve().parent / "images" / "theory"
# The tree of the pages on joint coordinates: parents of eight bodies; -1 is the ground.
PARENTS = [-1, 0, 1, 1, 3, 0, 5, 5]


def save(figure, name):
    """Write a figure."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / f"{name}.png", dpi=90)


def matrices(names, shown, name):
    """Entries that are not zero."""
    figure = Figure(figsize=(2.6 * len(shown), 2.9), layout="constrained")
    for axis, title, matrix in zip(figure.subplots(1, len(shown)), names, shown, strict=True):
        axis.imshow(np.abs(matrix) > 0, cmap="Blues", vmin=0, vmax=1.3)
        axis.set(title=title, xticks=[], yticks=[])
    save(figure, name)


def joint():
    """The tree of joints, ancestors and the mass matrix."""
    n = len(PARENTS)
    ancestors = np.eye(n)
    for i, parent in enumerate(PARENTS):
        if parent >= 0:
            ancestors[i] += ancestors[parent]
    forward = np.eye(n)
    for i, parent in enumerate(PARENTS):
        if parent >= 0:
            forward[i, parent] = -1
    matrices(
        ["T: each body and its parent", "T⁻¹: ancestors", "mass matrix"],
        [forward, ancestors, ancestors.T @ ancestors],
        "joint",
    )


def maximal():
    """Mass matrix, constraint Jacobian and saddle point of a chain of five bodies."""
    n = 5
    M, G = np.kron(np.eye(n), np.ones((6, 6))), np.zeros((5 * n, 6 * n))
    for i in range(n):
        rows = slice(5 * i, 5 * i + 5)
        G[rows, 6 * i : 6 * i + 6] = 1
        if i > 0:
            G[rows, 6 * i - 6 : 6 * i] = 1
    saddle = np.block([[M, G.T], [G, np.zeros((5 * n, 5 * n))]])
    matrices(
        ["M: constant, a block a body", "G: two blocks a joint", "saddle point"],
        [M, G, saddle],
        "maximal",
    )


def natural():
    """A body as a centre and three vectors, with six springs."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    left, right = figure.add_subplot(1, 2, 1, projection="3d"), figure.add_subplot(1, 2, 2)
    nodes = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    for i in range(4):
        for j in range(i):
            color = "C0" if 0 in (i, j) else "C1"
            left.plot(*nodes[[i, j]].T, color=color)
    left.plot(*nodes.T, "ko")
    for text, node in zip(["c", "c + a", "c + b", "c + d"], nodes, strict=True):
        left.text(*(node + 0.05), text)
    left.set(xticks=[], yticks=[], zticks=[], title="springs of length 1 and √2")
    k = 10.0 ** np.arange(4, 9)
    measured = {8e4: 7.82e-02, 8e5: 8.24e-03, 1e6: 6.58e-03, 1e7: 6.55e-04, 1e8: 6.55e-05}
    right.loglog(list(measured), list(measured.values()), "o", label="three links, until 4 s")
    right.loglog(k, 6.55e3 / k, "k:", label="order 1")
    right.set(xlabel="stiffness [N/m]", ylabel="difference from rigid links [m]")
    right.legend(frameon=False)
    save(figure, "natural")


def points():
    """Particles of a planar and of a spatial body."""
    figure = Figure(figsize=(7.5, 3), layout="constrained")
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2, projection="3d")
    corners = np.array([[0.0, 0], [1.0, 0.1], [0.3, 0.8]])
    left.fill(*corners.T, alpha=0.2)
    middle = [(corners[i] + corners[j]) / 2 for i in range(3) for j in range(i)]
    left.plot(*corners.T, "o", markersize=9, label="primary particles")
    left.plot(*np.transpose(middle), "s", markersize=5, label="midpoints")
    left.set(title="in a plane: 3 + 3", xticks=[], yticks=[], aspect="equal", ylim=(-0.15, 1.25))
    left.legend(frameon=False, loc="upper right")
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [0.2, 1, 0], [0.3, 0.3, 0.9]])
    for i in range(4):
        for j in range(i):
            right.plot(*corners[[i, j]].T, color="C0", alpha=0.4)
            right.plot(*((corners[i] + corners[j]) / 2), "C1s", markersize=5)
    right.plot(*corners.T, "C0o", markersize=9)
    right.set(title="in space: 4 + 6", xticks=[], yticks=[], zticks=[])
    save(figure, "points")


def velocity_transformation():
    """From the velocities of particles to those of joints."""
    n = 5
    B = np.zeros((2 * n, n))
    for i in range(n):
        B[2 * i : 2 * i + 2, : i + 1] = 1
    M = np.kron(np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1), np.eye(2))
    matrices(
        ["M of particles: constant", "B: particles by joints", "Bᵀ M B"],
        [M, B, B.T @ M @ B],
        "velocity_transformation",
    )


def explicit():
    """Amplification of undamped vibration by Runge-Kutta methods."""
    y = np.linspace(0.0, 5.0, 400)
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    for solver in (diffrax.Euler(), diffrax.Midpoint(), diffrax.Bosh3(), diffrax.Tsit5()):
        radius = np.abs([_amplification(solver, 1j * x) for x in y])
        axis.plot(y, radius, label=type(solver).__name__)
    axis.plot(y, np.abs([_amplification(diffrax.Dopri8(), 1j * x) for x in y]), label="Dopri8")
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set(xlabel="ω h", ylabel="amplification in a step", ylim=(0, 2))
    axis.legend(frameon=False, ncols=3)
    save(figure, "explicit")


def _amplification(solver, z):
    """R(z) = 1 + z bᵀ (1 - z A)⁻¹ 1 of an explicit method."""
    if isinstance(solver, diffrax.Euler):
        return 1 + z
    tableau = solver.tableau
    n = len(tableau.b_sol)
    A = np.zeros((n, n))
    for i, row in enumerate(tableau.a_lower, 1):
        A[i, :i] = row
    return 1 + z * tableau.b_sol @ np.linalg.solve(np.eye(n) - z * A, np.ones(n))


def generalized_alpha():
    """Spectral radius and period error by ρ∞."""
    x = np.logspace(-2, 3, 400)
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    for rho in (0.0, 0.5, 0.8, 0.9, 1.0):
        roots = [_alpha_roots(rho, value) for value in x]
        left.semilogx(x, [np.abs(r).max() for r in roots], label=f"ρ∞ = {rho}")
        low = x < 1.5
        # The root of the vibration turns; those of the method lie on the real axis.
        angle = [np.angle(r[np.argmax(r.imag)]) for r in np.array(roots)[low]]
        right.plot(x[low], 100 * (x[low] / np.array(angle) - 1))
    left.set(xlabel="ω h", ylabel="spectral radius", ylim=(-0.02, 1.05))
    left.legend(frameon=False)
    right.set(xlabel="ω h", ylabel="period too long by [%]")
    save(figure, "generalized_alpha")


def _alpha_roots(rho, x):
    """Eigenvalues of a step for q̈ = -ω² q, with ω h = x and h = 1."""
    am, af = (2 * rho - 1) / (rho + 1), rho / (rho + 1)
    gamma = 0.5 + af - am
    beta = 0.25 * (gamma + 0.5) ** 2
    # Unknowns q₁, v₁, v̇₁, a₁ from q₀, v₀, v̇₀, a₀.
    new = np.array(
        [[1, 0, 0, -beta], [0, 1, 0, -gamma], [x**2, 0, 1, 0], [0, 0, -(1 - af), 1 - am]], float
    )
    old = np.array(
        [[1, 1, 0, 0.5 - beta], [0, 1, 0, 1 - gamma], [0, 0, 0, 0], [0, 0, af, -am]], float
    )
    return np.linalg.eigvals(np.linalg.solve(new, old))


def bdf():
    """Largest root for undamped vibration."""
    x = np.logspace(-1.5, 2, 400)
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    for order in range(1, 6):
        nodes = -np.arange(order + 1.0)
        # Derivatives at the newest node of the polynomials that are one at one node.
        unit = [BarycentricInterpolator(nodes, row) for row in np.eye(order + 1)]
        weights = np.array([(f(1e-4) - f(-1e-4)) / 2e-4 for f in unit])
        radius = []
        for value in x:
            polynomial = weights.astype(complex)
            polynomial[0] -= 1j * value
            radius.append(np.abs(np.roots(polynomial)).max())
        axis.semilogx(x, radius, label=f"order {order}")
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set(xlabel="ω h", ylabel="amplification in a step", ylim=(0, 2))
    axis.legend(frameon=False)
    save(figure, "bdf")


def energy():
    """Amplification of undamped vibration by both energy schemes, and their period errors."""
    x = np.logspace(-2, 3, 400)
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    z = 1j * x
    schemes = {
        "EnergyMomentum": (1 + z / 2) / (1 - z / 2),
        "EnergyDecaying": (1 + z / 3) / (1 - 2 * z / 3 + z**2 / 6),
    }
    for label, factor in schemes.items():
        left.semilogx(x, np.abs(factor), label=label)
        low = x < 1.5
        right.plot(x[low], 100 * (x[low] / np.angle(factor[low]) - 1), label=label)
    left.set(xlabel="ω h", ylabel="amplification in a step", ylim=(-0.02, 1.05))
    right.set(xlabel="ω h", ylabel="period too long by [%]")
    left.legend(frameon=False)
    save(figure, "energy")


def simo_gonzalez():
    """A mass on a stiff spring in a plane: energy by the secant and by the midpoint force."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    for label, secant in (("force at the middle", False), ("two-point force", True)):
        axis.plot(*_spring(secant), label=label)
    axis.set(xlabel="time [s]", ylabel="energy by energy at the start", ylim=(0.965, 1.01))
    axis.legend(frameon=False, loc="upper right", ncols=2)
    save(figure, "simo_gonzalez")


def _spring(secant, k=1e4, rest=1.0, h=0.02, n=60):
    """Times [s] and relative energies of a unit mass."""
    q, v, energies = np.array([1.05, 0.0]), np.array([0.0, 3.0]), []

    def energy(q, v):
        return 0.5 * v @ v + 0.5 * k * (np.linalg.norm(q) - rest) ** 2

    def factor(q0, q1):
        if secant:
            return k * (1 - 2 * rest / (np.linalg.norm(q0) + np.linalg.norm(q1)))
        return k * (1 - rest / np.linalg.norm((q0 + q1) / 2))

    def residual(q1, q0, v0):
        # v₁ from q₁ - q₀ = h (v₀ + v₁) / 2.
        v1 = 2 * (q1 - q0) / h - v0
        return (v1 - v0) / h + factor(q0, q1) * (q0 + q1) / 2

    for _ in range(n):
        energies.append(energy(q, v))
        q1 = q + h * v
        for _ in range(30):
            r = residual(q1, q, v)
            J = np.array(
                [(residual(q1 + d, q, v) - residual(q1 - d, q, v)) / 2e-7 for d in 1e-7 * np.eye(2)]
            ).T
            q1 = q1 - np.linalg.solve(J, r)
        q, v = q1, 2 * (q1 - q) / h - v
    return h * np.arange(n), np.array(energies) / energies[0]


def conventions():
    """Two frames, a position, and a twist along the axes of the body."""
    figure = Figure(figsize=(5.5, 3), layout="constrained")
    axis = figure.subplots()
    angle = np.radians(35)
    x, z = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    at, com = np.array([2.2, 0.7]), np.array([2.2, 0.7]) + 0.8 * x
    corners = [com + a * 1.0 * x + b * 0.25 * z for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    axis.fill(*np.transpose(corners), color="C0", alpha=0.2)
    arrow = {"width": 0.02, "length_includes_head": True, "head_width": 0.09}
    for start, directions, name in ((np.zeros(2), np.eye(2), "W"), (at, (x, z), "B")):
        for direction, color, label in zip(directions, ("C3", "C2"), "xz", strict=True):
            axis.arrow(*start, *(0.8 * direction), color=color, **arrow)
            axis.text(*(start + 0.9 * direction), f"{label} of {name}", color=color)
        axis.text(*(start - [0.12, 0.22]), name, fontweight="bold")
    axis.arrow(0, 0, *at, color="0.4", **arrow)
    axis.text(1.0, 0.5, "p_WB")
    axis.plot(*com, "ko")
    axis.text(com[0] + 0.08, com[1] - 0.22, "centre of mass, com in B")
    axis.set(aspect="equal", xlim=(-0.4, 4.6), ylim=(-0.4, 2.1))
    axis.axis("off")
    save(figure, "conventions")


def concepts():
    """From a model to a motion: a pendulum in four boxes."""
    figure = Figure(figsize=(10, 2.7), layout="constrained")
    panels = figure.subplots(1, 4)
    titles = "Model", "System", "State", "Motion"
    texts = (
        "bodies, joints, forces",
        "M(q) v̇ + b = f + Gᵀλ",
        "q = [0.3],  v = [0]",
        "states, reactions",
    )
    for axis, title, text in zip(panels, titles, texts, strict=True):
        axis.set_title(title, fontweight="bold")
        axis.set(xlabel=text, xticks=[], yticks=[])
        axis.xaxis.label.set_size(11)
    for axis, words in zip(panels[1:], ("formulate", "assemble", "simulate"), strict=True):
        arrow = {"arrowstyle": "-|>", "lw": 1.5, "color": "0.3"}
        at = {"xycoords": "axes fraction", "textcoords": "axes fraction"}
        axis.annotate("", (-0.02, 0.5), (-0.36, 0.5), arrowprops=arrow, annotation_clip=False, **at)
        axis.text(-0.2, 0.56, words, transform=axis.transAxes, ha="center", fontsize=9)
    _rod(panels[0], 0.9)
    panels[0].text(0.05, 0.12, "hinge", fontsize=9)
    panels[0].text(0.5, -0.45, "rod", fontsize=9)
    panels[0].annotate("", (-0.3, -0.95), (-0.3, -0.35), arrowprops={"arrowstyle": "-|>"})
    panels[0].text(-0.25, -0.7, "gravity", fontsize=9)
    panels[1].text(0.5, 0.5, "q: angle of the hinge\nv: its rate", ha="center", va="center")
    _rod(panels[2], 0.3)
    panels[2].plot([0, 1], [0, 0], "k:", lw=1)
    panels[2].text(0.55, -0.09, "0.3", fontsize=9)
    t, q = _swing(0.3)
    panels[3].plot(t, q)
    panels[3].set_ylim(0.0, 4.0)
    panels[3].text(2.0, 3.5, "angle over time", fontsize=9, ha="center")
    figure.get_layout_engine().set(wspace=0.12)
    save(figure, "concepts")


def _rod(axis, angle):
    """A rod on a hinge, `angle` below the horizontal."""
    axis.plot([0, np.cos(angle)], [0, -np.sin(angle)], lw=6, color="C0", solid_capstyle="round")
    axis.plot(0, 0, "o", ms=9, color="0.2")
    axis.set(xlim=(-0.5, 1.3), ylim=(-1.2, 0.5))


def _swing(angle, t1=4.0, n=2000):
    """Angle over time of a rod of 1 m that falls from rest, by semi-implicit Euler."""
    t, q, v = np.linspace(0.0, t1, n), [angle], 0.0
    for h in np.diff(t):
        v += h * 1.5 * 9.81 * np.cos(q[-1])
        q.append(q[-1] + h * v)
    return t, q


def main():
    """Draw all figures."""
    concepts()
    conventions()
    for draw in (joint, maximal, natural, points, velocity_transformation):
        draw()
    for draw in (explicit, generalized_alpha, bdf, energy, simo_gonzalez):
        draw()


if __name__ == "__main__":
    main()

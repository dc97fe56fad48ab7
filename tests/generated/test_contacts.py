"""Models with contacts and tyres have generated code, as those without them."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import contact, forces, tyres
from jaxmbd.formulations.joint.tree_dynamics import _by_articulated_bodies

SURFACES = {
    "half space": contact.HalfSpace("ground"),
    "washboard": contact.Terrain("ground", contact.Washboard(0.01, 1.0) + contact.Slope([0.1, 0])),
    "grid": contact.Terrain("ground", contact.HeightGrid(np.zeros((8, 8)), 0.5, (-2.0, -2.0))),
}
pytest.importorskip("llvmlite")

ACROSS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


@pytest.mark.long
@pytest.mark.parametrize("surface", SURFACES)
def test_every_operation_is_covered(surface):
    touch = forces.Contact(
        contact.Sphere("ball", 0.1),
        SURFACES[surface],
        contact.HuntCrossley(1e4, 0.1, exponent=1.5),
        contact.Bristle(0.5, 1e3, 10.0),
    )
    tyre = forces.Tyre(
        contact.Disc(mbd.Frame("wheel", R=ACROSS), 0.3),
        SURFACES[surface],
        contact.KelvinVoigt(1e4, 10.0),
        tyres.Brush(5.0),
        relaxation=0.3,
    )
    bodies = {name: mbd.inertia.sphere(1.0, 0.1) for name in ("ball", "wheel")}
    system = mbd.formulate(mbd.Model(bodies, forces={"touch": touch, "tyre": tyre}))
    state = mbd.assemble(system)

    with scalarjit.enabled(True):
        made = scalarjit.native_or_reason(_by_articulated_bodies, system, (jnp.zeros(()), state))
    assert isinstance(made, scalarjit.NativeFunction), made

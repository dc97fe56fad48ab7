"""A link without mass between two joints."""

from jaxtyping import Array, Float

from .abstract import AbstractBody


class MasslessLink(AbstractBody):
    """A link without mass and inertia that carries other bodies by joints.

    Several joints between two bodies are a chain with such links: each joint has a name, and
    forces, rotors and couplings of its own. `JointCoordinates` represents massless links, and
    each of them must have a body with mass beyond it in the tree.

    Other formulations **raise** `ModelError`, since their mass matrices would be singular.
    """

    def kinetic_energy(
        self, eta: Float[Array, "0"], V: Float[Array, "6"], eta_dot: Float[Array, "0"]
    ) -> Float[Array, ""]:
        return 0.0 * (V @ V)

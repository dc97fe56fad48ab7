"""Laws of impact between rigid bodies."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.arguments import as_count
from ..model.values import as_leaf, is_concrete, negative


class Restitution(eqx.Module):
    """Newton's law of restitution with Coulomb friction, for `simulate(impacts=...)`.

    With the velocity w of the first body relative to the second one at the point of contact, the
    normal n towards the first body, and W the change of w by a unit impulse, the impulse P is

        n·w⁺ = -e n·w⁻,   w⁺ = w⁻ + W P,   |P_t| ≤ μ P_n

    First, P is the impulse after which the tangential velocity is zero. If its tangential part
    exceeds μ P_n, the body slides: this part keeps its direction and is μ P_n. For spheres and in a
    plane this is Coulomb's law for the whole impact. Elsewhere the direction of slip may turn
    during an impact, which the law ignores (Chatterjee and Ruina 1998, A new algebraic rigid-body
    collision law based on impulse space considerations, compares such laws).

    Only one point collides at a time. If several points touch, the one that approaches fastest
    collides first, then the next one at the same time, until none approaches. A row of equal balls
    hands on the velocity of the first ball. A box that falls flat does not stay flat.

    **Arguments:**

    - `restitution`: e, from 0 to 1.
    - `friction`: μ, not negative. Default: 0.
    - `max_impacts`: largest number of impacts in a motion. Default: 100.

    **Raises** `ModelError` for other numbers. Traced numbers are not checked.

    For example:

        law = contact.Restitution(0.8, 0.2, max_impacts=20)
    """

    restitution: Float[Array, ""]
    friction: Float[Array, ""]
    max_impacts: int = eqx.field(static=True)

    def __init__(self, restitution: Any, friction: Any = 0.0, max_impacts: int = 100):
        self.restitution = as_leaf(restitution, (), "Restitution: restitution")
        self.friction = as_leaf(friction, (), "Restitution: friction")
        self.max_impacts = as_count(max_impacts, "Restitution: max_impacts")
        e = self.restitution
        if is_concrete(e) and not 0.0 <= float(e) <= 1.0:
            raise ModelError(f"Restitution: restitution must be from 0 to 1, got {e}")
        problem = negative(self, "friction")
        if problem is not None:
            raise ModelError(f"Restitution: {problem}")

"""Contacts between all pairs of many shapes."""

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from ..contact import (
    AbstractFriction,
    AbstractNormalLaw,
    AbstractShape,
    AbstractSurface,
    RollingResistance,
    is_pair,
)
from ..errors import ModelError
from ..model.values import as_instance, as_mapping, described
from .contact import Contact


class Material(NamedTuple):
    """The laws of a contact: `normal`, `friction` and `rolling`, as in `Contact`.

    For example:

        rubber = forces.Material(contact.HuntCrossley(1e5, 0.3, exponent=1.5), contact.Coulomb(0.9))
    """

    normal: AbstractNormalLaw
    friction: AbstractFriction | None = None
    rolling: RollingResistance | None = None


Materials = Material | Callable[[str, str], Material]


def contact_pairs(
    shapes: Mapping[str, AbstractShape],
    materials: Materials,
    exclude: Iterable[tuple[str, str]] = (),
) -> dict[str, Contact]:
    """Contacts of all pairs of shapes on different bodies, as entries of `Model(forces=…)`.

    All pairs are evaluated at all times, those of like shapes together: nothing compiles again when
    bodies meet. A pair out of contact costs as much as one in contact. Two surfaces are not a pair.

    **Arguments:**

    - `shapes`: `{name: shape}`.
    - `materials`: a `Material` for all pairs, or a function of the two names that returns one.
    - `exclude`: pairs of names without contact, in any order.

    **Returns** `{"first-second": Contact}`, the names in the order of `shapes`.

    **Raises** `ModelError` for unknown names in `exclude`, and for pairs of kinds without points of
    contact, such as two boxes, that are not excluded.
    """
    shapes = as_mapping(shapes, "contact_pairs: shapes", "{name: shape}")
    for name, shape in shapes.items():
        as_instance(shape, AbstractShape, f"contact_pairs: shape {name!r}", "a shape")
    if not isinstance(materials, Material) and (
        isinstance(materials, type) or not callable(materials)
    ):
        raise ModelError(
            "contact_pairs: materials must be a Material, or a function of two names that returns "
            f"one, got {described(materials)}"
        )
    excluded = {frozenset(pair) for pair in exclude}
    for name in sorted(set().union(*excluded)):
        if name not in shapes:
            known = ", ".join(map(repr, shapes))
            raise ModelError(f"contact_pairs: exclude: unknown shape {name!r}; known are {known}")
    pairs = {}
    for (first, a), (second, b) in combinations(shapes.items(), 2):
        if a.frame.body == b.frame.body or frozenset((first, second)) in excluded:
            continue
        if isinstance(a, AbstractSurface) and isinstance(b, AbstractSurface):
            continue
        if not (is_pair(a, b) or is_pair(b, a)):
            raise ModelError(
                f"contact_pairs: no points of contact between {type(a).__name__} {first!r} and "
                f"{type(b).__name__} {second!r}; exclude this pair, or take spheres"
            )
        laws: Any = materials if isinstance(materials, Material) else materials(first, second)
        as_instance(
            laws, Material, f"contact_pairs: the material of {first!r} and {second!r}", "a Material"
        )
        pairs[f"{first}-{second}"] = Contact(a, b, *laws)
    return pairs

"""The model: named components, and one float type for all of its numbers."""

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import FloatTypeWarning, ModelError, warn
from .frame import GROUND, Frame, JointReference, as_frame, is_reference
from .values import as_leaf, as_mapping, is_concrete, zero_direction

if TYPE_CHECKING:
    from ..bodies import AbstractBody, Rotor
    from ..forces import AbstractElement
    from ..joints import AbstractCoupling, AbstractJoint, Driver


class Model(eqx.Module):
    """Named bodies, joints, forces and marker frames.

    Every float in a model is a leaf. Gradients, batches and replacements therefore address the
    components by name: `eqx.filter_grad(loss)(model).bodies["rod"].mass`.

    **Arguments:**

    - `bodies`: `{name: body}`, such as `RigidBody`.
    - `joints`: `{name: joint}`, see `jaxmbd.joints`. A body that no chain of joints connects to
      the ground floats freely.
    - `forces`: `{name: force}`, see `jaxmbd.forces`.
    - `frames`: `{name: Frame}`, marker frames, reported together with the frames of the bodies.
    - `couplings`: `{name: coupling}`, joints that move in proportion, see `jaxmbd.joints`.
    - `drivers`: `{name: Driver}`, coordinates of joints prescribed as functions of time.
    - `rotors`: `{name: Rotor}`, inertia behind gears.

    **Raises** `ModelError`, naming the component, if it refers to an unknown body or joint, if a
    joint connects a body to itself, if a name is used twice, if it has another type, or if values
    are invalid.

    For example:

        model = mbd.Model(
            bodies={"rod": mbd.inertia.rod(mass=1.0, length=1.0)},
            joints={"hinge": mbd.joints.Revolute("ground", "rod", axis=[0, 1, 0])},
            forces={"gravity": mbd.forces.Gravity()},
        )
        heavier = model.replace({"bodies.rod.mass": 2.0})
        driven = model.with_(forces={"motor": mbd.forces.JointTorque("hinge", 1.0)})
    """

    bodies: dict[str, "AbstractBody"]
    joints: dict[str, "AbstractJoint"]
    forces: dict[str, "AbstractElement"]
    frames: dict[str, Frame]
    couplings: dict[str, "AbstractCoupling"]
    drivers: dict[str, "Driver"]
    rotors: dict[str, "Rotor"]

    def __init__(
        self,
        bodies: Mapping[str, Any],
        joints: Mapping[str, Any] | None = None,
        forces: Mapping[str, Any] | None = None,
        frames: Mapping[str, Any] | None = None,
        couplings: Mapping[str, Any] | None = None,
        drivers: Mapping[str, Any] | None = None,
        rotors: Mapping[str, Any] | None = None,
    ):
        self.bodies = as_components("body", bodies)
        self.joints = as_components("joint", joints)
        self.forces = {
            name: force.lowered() for name, force in as_components("force", forces).items()
        }
        self.frames = {
            name: as_frame(frame, f"frame {name!r}")
            for name, frame in as_components("frame", frames).items()
        }
        self.couplings = as_components("coupling", couplings)
        self.drivers = as_components("driver", drivers)
        self.rotors = as_components("rotor", rotors)

    def __check_init__(self):
        if not self.bodies:
            raise ModelError("a model needs at least one body")
        for name in (*self.bodies, *self.frames):
            if name == GROUND:
                raise ModelError(f"{name!r} cannot be the name of a body or a frame")
        for name in self.frames:
            if name in self.bodies:
                raise ModelError(f"frame {name!r} has the name of a body; give it another one")
        for joint in self.joints:
            for end in ("predecessor", "successor"):
                if f"{joint}.{end}" in self.bodies or f"{joint}.{end}" in self.frames:
                    raise ModelError(f"{joint}.{end} is the name of a frame of joint {joint!r}")
        for kind in ("joint", "force", "frame", "coupling", "driver", "rotor"):
            for name, component in getattr(self, f"{kind}s").items():
                _check_references(f"{kind} {name!r}", component, self.bodies, self.joints)
        for name, joint in self.joints.items():
            if joint.predecessor.body == joint.successor.body:
                raise ModelError(
                    f"joint {name!r} connects {joint.predecessor.body!r} to itself; "
                    "its two frames must be on different bodies"
                )

        self.check_values()

    def components(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """All components by name, each mapping with the noun for its kind in messages."""
        return (
            ("body", self.bodies),
            ("joint", self.joints),
            ("force", self.forces),
            ("frame", self.frames),
            ("coupling", self.couplings),
            ("driver", self.drivers),
            ("rotor", self.rotors),
        )

    def with_(
        self,
        bodies: Mapping[str, Any] | None = None,
        joints: Mapping[str, Any] | None = None,
        forces: Mapping[str, Any] | None = None,
        frames: Mapping[str, Any] | None = None,
        couplings: Mapping[str, Any] | None = None,
        drivers: Mapping[str, Any] | None = None,
        rotors: Mapping[str, Any] | None = None,
    ) -> "Model":
        """The model with components added, replaced or removed by name; all others stay.

        **Arguments:** as those of `Model`: a new name adds a component, the name of a component
        replaces it, and `{name: None}` removes it.

        **Raises** `ModelError`, with the known names, if there is no component to remove; and as
        `Model`, for example if a joint to remove is still used by a force.

        For example:

            brake = mbd.forces.ViscousFriction("hinge", 0.1)
            braked = model.with_(forces={"brake": brake})
            weightless = braked.with_(forces={"gravity": None})
        """
        changes = (bodies, joints, forces, frames, couplings, drivers, rotors)
        changed = {}
        for (kind, known), change in zip(self.components(), changes, strict=True):
            plural = "bodies" if kind == "body" else f"{kind}s"
            change = as_mapping(change, f"with_: {plural}", f"{{name: {kind}}}")
            for name, component in change.items():
                if component is None and name not in known:
                    raise ModelError(unknown(f"with_: there is no {kind}", name, known))
            merged = {**known, **change}
            changed[plural] = {name: x for name, x in merged.items() if x is not None}
        return Model(**changed)

    def replace(self, values: Any) -> "Model":
        """The model with other values: `model.replace({"bodies.rod.mass": 2.0})`.

        Works under `jit`, `grad` and `vmap`. `with_` adds and removes components.

        **Arguments:** `values`: `{path: value}`: a path leads to a number, and the value has its
        shape, or to a component or a signal, and the value is another one. The keys of dicts may
        contain dots.

        **Raises** `ModelError`, with the known names, for an unknown path; for a value of another
        shape; and for values that `Model` rejects.
        """
        from .paths import replaced

        return replaced(self, values)

    def check_values(self) -> None:
        """Check all values that are not being traced.

        **Raises** `ModelError`, naming the component and the leaf, if a number is not finite or
        a component is invalid.
        """
        for kind, components in self.components():
            for name, component in components.items():
                for path, leaf in jax.tree_util.tree_leaves_with_path(component):
                    problem = _problem_of_leaf(leaf)
                    if problem is not None:
                        field = jax.tree_util.keystr(path).lstrip(".")
                        raise ModelError(f"{kind} {name!r}: {field} {problem}")
                problem = component.validate() or zero_direction(component)
                for reference in references(component):
                    problem = problem or reference.validate()
                if problem is not None:
                    raise ModelError(f"{kind} {name!r}: {problem}")


def _problem_of_leaf(leaf: Any) -> str | None:
    """A message about a leaf of a component that is not a finite number, or None."""
    if callable(leaf):
        return (
            "is a function, and fields hold numbers: declare the field of the class with "
            "equinox.field(static=True); of a network, hold both parts of "
            "equinox.partition(network, equinox.is_array), the second one static"
        )
    if not is_concrete(leaf):
        return None
    try:
        finite = np.all(np.isfinite(np.asarray(leaf)))
    except TypeError:
        return (
            f"is {leaf!r}, and fields hold numbers: declare the field of the class with "
            "equinox.field(static=True)"
        )
    return None if finite else f"must be finite, got {np.asarray(leaf).tolist()}"


def _check_references(
    caller: str, component: Any, bodies: Mapping[str, Any], joints: Mapping[str, Any]
) -> None:
    # Not a method: equinox wraps a method at each access, at a cost that grows with the module.
    for reference in references(component):
        if isinstance(reference, Frame):
            if reference.body != GROUND and reference.body not in bodies:
                raise ModelError(unknown(f"{caller}: unknown body", reference.body, bodies))
            _check_node(caller, reference, bodies.get(reference.body))
        elif isinstance(reference, JointReference) and reference.name not in joints:
            raise ModelError(unknown(f"{caller}: unknown joint", reference.name, joints))


def _check_node(caller: str, frame: Frame, body: "AbstractBody | None") -> None:
    if body is None:
        if frame.node is not None:
            raise ModelError(f"{caller}: the ground has no node {frame.node!r}; give a position p")
        return
    try:
        body.node_row(frame.node)
    except ModelError as error:
        raise ModelError(f"{caller}: frame on {frame.body!r}: {error}") from error


def unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    """A message about an unknown name, with a list of the known ones."""
    names = sorted(known)
    listed = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
    return f"{what} {name!r}; known are {listed or 'none'}"


def references(component: Any) -> list[Any]:
    """Every `Reference` within a component, in the order of its fields."""
    return [x for x in jax.tree.leaves(component, is_leaf=is_reference) if is_reference(x)]


def anonymous(component: Any) -> Any:
    """The component without the names in its references."""
    return jax.tree.map(
        lambda x: x.anonymous() if is_reference(x) else x, component, is_leaf=is_reference
    )


# Checks that every component of a model is an instance of its kind --------------------------------


def as_components(kind: str, given: Any) -> dict[str, Any]:
    """A dict of the components of one kind, such as `joint`, by name.

    **Raises** `ModelError` for anything but a mapping with names, and for a component of another
    class, or a class instead of an instance.
    """
    # Bodies, joints and forces import the model.
    from ..bodies import AbstractBody, Rotor
    from ..forces import AbstractElement
    from ..joints import AbstractCoupling, AbstractJoint, Driver

    kinds: dict[str, tuple[Any, str]] = {
        "body": (AbstractBody, "a body such as RigidBody or one of jaxmbd.inertia"),
        "joint": (AbstractJoint, "a joint of jaxmbd.joints such as Revolute"),
        "force": (AbstractElement, "a force of jaxmbd.forces such as Gravity, or a controller"),
        "frame": (object, "a Frame"),
        "coupling": (AbstractCoupling, "a coupling of jaxmbd.joints such as Gear"),
        "driver": (Driver, "a jaxmbd.joints.Driver"),
        "rotor": (Rotor, "a Rotor"),
    }
    base, described = kinds[kind]
    plural = "bodies" if kind == "body" else f"{kind}s"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ModelError(f"{plural} must be a dict {{name: {kind}}}, got a {type(given).__name__}")
    for name, component in given.items():
        if not isinstance(name, str) or not name:
            raise ModelError(f"{name!r} cannot be the name of a {kind}: names are texts")
        if isinstance(component, type):
            raise ModelError(
                f"{kind} {name!r} is the class {component.__name__}; pass an instance, "
                f"{component.__name__}(...)"
            )
        if not isinstance(component, base):
            raise ModelError(f"{kind} {name!r} must be {described}, got {component!r:.60}")
    return dict(given)


# One float type for all numbers of a model, and for the states of its system ----------------------

MAX_LISTED = 6  # Leaves that a warning lists.


def float_type(tree: PyTree) -> np.dtype:
    """The widest float type among the leaves; JAX's default one if no leaf is a float.

    A Python float counts as JAX's default type: float64 if `jax_enable_x64` is on, else float32.
    """
    types = {own for x in jax.tree.leaves(tree) if (own := _float_type_of(x)) is not None}
    return _widest(types) if types else jax.dtypes.canonicalize_dtype(float)


def in_float_type(tree: PyTree, dtype: np.dtype) -> PyTree:
    """Convert the float leaves of a tree to `dtype`; leaves of this type remain the same objects.

    Integers are converted in bodies and frames only, whose leaves are all floats.
    """

    from ..bodies import AbstractBody  # Which imports the model.

    def converted(x: Any, integers: bool = False) -> Any:
        own = _float_type_of(x)  # Compared with None by `is`: NumPy's float64 equals None.
        if own is None:
            return jnp.asarray(x, dtype) if integers else x
        return x if own == dtype else jnp.asarray(x, dtype)

    def component(x: Any) -> Any:
        if isinstance(x, AbstractBody | Frame):
            return jax.tree.map(lambda leaf: converted(leaf, integers=True), x)
        return converted(x)

    return jax.tree.map(component, tree, is_leaf=lambda x: isinstance(x, AbstractBody | Frame))


def in_one_float_type(model: Model, dtype: Any = None, caller: str = "formulate") -> Model:
    """Convert all floats of a model to `dtype`. Default: the widest float type of the model.

    `caller` names the calling function in messages.

    **Warns** by `FloatTypeWarning`, naming the leaves of narrower types, if `dtype` is None and the
    model has several float types.

    **Raises** `ModelError` for a type other than float32 and float64, and for float64 if
    `jax_enable_x64` is off.
    """
    if not isinstance(model, Model):
        raise ModelError(f"{caller} needs a Model, got a {type(model).__name__}")
    if dtype is not None:
        return in_float_type(model, _checked(dtype))
    widest = float_type(model)
    if widest not in (np.float32, np.float64):
        raise ModelError(
            f"{caller}: all floats of the model are {widest}, in which no formulation computes; "
            "convert them to float32, or pass dtype=jnp.float32 to formulate"
        )
    narrower = [
        f"{name} ({own})" for name, own in _named_types(model) if own is not None and own != widest
    ]
    if narrower:
        n_more = len(narrower) - MAX_LISTED
        more = f" and {n_more} more" if n_more > 0 else ""
        warn(
            f"{caller}: the model mixes float types and is computed in {widest}, its widest; "
            f"narrower are {', '.join(narrower[:MAX_LISTED])}{more}; convert them, or pass "
            f"dtype=jnp.{widest} to formulate to accept this",
            FloatTypeWarning,
        )
    return in_float_type(model, widest)


def as_own(x: Any, system: Any, name: str) -> jax.Array:
    """Convert `x`, called `name` in messages, to an array of the system's float type.

    **Raises** `ModelError` for a wider float type, whose digits would be lost.
    """
    own = system.mechanism.dtype
    if not isinstance(x, jax.Array):
        x = as_leaf(x, None, name)
    if x.dtype == own:
        return x
    if jnp.issubdtype(x.dtype, jnp.floating) and _widest({x.dtype, own}) != own:
        raise ModelError(
            f"{name} is {x.dtype}, but the system computes in {own}; convert it with "
            f"{name}.astype(jnp.{own}), or formulate the model with dtype=jnp.{x.dtype}"
        )
    return x.astype(own)


def _checked(dtype: Any) -> np.dtype:
    try:
        checked = np.dtype(dtype)
    except TypeError as error:
        raise ModelError(f"formulate: dtype must be a float type, got {dtype!r}") from error
    if checked not in (np.float32, np.float64):
        raise ModelError(f"formulate: dtype must be float32 or float64, got {checked}")
    if jax.dtypes.canonicalize_dtype(checked) != checked:
        raise ModelError(
            "formulate: dtype float64 needs jax.config.update('jax_enable_x64', True) before the "
            "model is created"
        )
    return checked


def _float_type_of(x: Any) -> np.dtype | None:
    """The float type in which JAX computes with a leaf, or None if the leaf is not a float."""
    dtype = float if isinstance(x, float) else getattr(x, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        return None
    return jax.dtypes.canonicalize_dtype(dtype)


def _widest(types: set[Any]) -> np.dtype:
    with jax.numpy_dtype_promotion("standard"):  # Also if the user forbids implicit promotion.
        return functools.reduce(jnp.promote_types, types)


def _named_types(model: Model) -> Iterator[tuple[str, np.dtype | None]]:
    for kind, components in model.components():
        for name, component in components.items():
            for path, leaf in jax.tree_util.tree_leaves_with_path(component):
                where = jax.tree_util.keystr(path).lstrip(".")
                yield f"{kind} {name!r}: {where}", _float_type_of(leaf)

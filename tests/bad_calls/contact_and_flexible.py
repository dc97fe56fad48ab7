"""Contact, tyres and flexible bodies."""
# pyright: reportArgumentType=false

from typing import Any

import equinox as eqx
import jax
import numpy as np

import jaxmbd as mbd
from jaxmbd import contact, flexible, forces, sensors, tyres
from tests.bad_calls.values import (
    BALL,
    MEMBER,
    PLANE,
    SECTION,
    SPRING,
    Call,
    in_contact,
    rubbing,
    skip,
    touching,
    with_force,
    with_tyre,
)


def beam(**given: Any) -> Any:
    usual = {"section": SECTION, "length": 1.0, "E": 2e11, "G": 8e10, "density": 7800.0}
    return flexible.beam(**{**usual, "n_elements": 2, "n_modes": 2, **given})


def read_stress(**given: Any) -> Any:
    """The reading of a body at rest with recovery of stresses."""
    part = beam()
    n_nodes, n_elastic = len(part.positions), part.n_elastic
    part = eqx.tree_at(
        lambda part: part.stresses,
        part,
        np.ones((n_nodes, n_elastic, 6)),
        is_leaf=lambda x: x is None,
    )
    system = mbd.formulate(mbd.Model({"part": part}), mbd.JointCoordinates())
    return sensors.Stress(**given)(system, np.zeros(()), mbd.assemble(system))


CONTACT = {
    "Sphere": Call(
        contact.Sphere,
        {"frame": "rod", "radius": 0.1},
        {"frame": "frame", "radius": "positive"},
        touching,
    ),
    "Capsule": Call(
        contact.Capsule,
        {"frame": "rod", "radius": 0.1, "length": 1.0, "n_balls": 2},
        {"frame": "frame", "radius": "positive", "length": "positive", "n_balls": "count"},
        touching,
    ),
    "Cylinder": Call(
        contact.Cylinder,
        {"frame": "rod", "radius": 0.1, "length": 1.0},
        {"frame": "frame", "radius": "positive", "length": "positive"},
        touching,
    ),
    "Box": Call(
        contact.Box,
        {"frame": "rod", "size": [1.0, 1, 1]},
        {"frame": "frame", "size": "vector"},
        touching,
    ),
    "Disc": Call(
        contact.Disc,
        {"frame": "rod", "radius": 0.1},
        {"frame": "frame", "radius": "positive"},
        touching,
    ),
    "HalfSpace": Call(contact.HalfSpace, {"frame": mbd.ground}, {"frame": "frame"}),
    "Terrain": Call(
        contact.Terrain,
        {"frame": mbd.ground, "height": contact.Slope([0.1, 0.0])},
        {"frame": "frame", "height": "law"},
    ),
    "HeightGrid": Call(
        contact.HeightGrid,
        {"heights": np.zeros((4, 4)), "spacing": (0.1, 0.1)},
        {"heights": "matrix", "spacing": "option"},
        skip=skip("spacing", "number"),
    ),
    "Slope": Call(
        contact.Slope, {"gradient": [0.1, 0]}, {"gradient": "number"}, skip=skip("gradient", "two")
    ),
    "Washboard": Call(
        contact.Washboard,
        {"amplitude": 0.1, "wavelength": 1.0},
        {"amplitude": "number", "wavelength": "number"},
    ),
    "KelvinVoigt": Call(
        contact.KelvinVoigt,
        {"stiffness": 1e3, "damping": 1.0},
        {"stiffness": "positive", "damping": "not negative"},
        in_contact,
    ),
    "HuntCrossley": Call(
        contact.HuntCrossley,
        {"stiffness": 1e3, "damping": 1.0, "exponent": 1.5},
        {"stiffness": "positive", "damping": "not negative", "exponent": "positive"},
        in_contact,
    ),
    "Hertz": Call(
        contact.Hertz,
        {"E": 1e9, "nu": 0.3, "R": 0.1},
        {"E": "positive", "nu": "finite", "R": "positive"},
        in_contact,
    ),
    "Coulomb": Call(
        contact.Coulomb,
        {"coefficient": 0.5, "transition_velocity": 0.01},
        {"coefficient": "not negative", "transition_velocity": "positive"},
        rubbing,
    ),
    "Bristle": Call(
        contact.Bristle,
        {"coefficient": 0.5, "stiffness": 1e4},
        {"coefficient": "positive", "stiffness": "positive"},
        rubbing,
    ),
    "RollingResistance": Call(
        contact.RollingResistance,
        {"rolling": 0.01, "spin": 0.01},
        {"rolling": "not negative", "spin": "not negative"},
        lambda x: with_force(forces.Contact(BALL, PLANE, SPRING, contact.Coulomb(0.5), x)),
    ),
    "Restitution": Call(
        contact.Restitution,
        {"restitution": 0.5, "friction": 0.1, "max_impacts": 10},
        {"restitution": "not negative", "friction": "not negative", "max_impacts": "count"},
    ),
    "tyres.Brush": Call(
        tyres.Brush,
        {"stiffness": 1e4, "friction": 1.0},
        {"stiffness": "positive", "friction": "positive"},
        with_tyre,
        skip("stiffness", "two") | skip("friction", "two"),
    ),
    "tyres.Linear": Call(
        tyres.Linear,
        {"stiffness": 1e4, "friction": 1.0},
        {"stiffness": "positive", "friction": "positive"},
        with_tyre,
        skip("stiffness", "two") | skip("friction", "two"),
    ),
    "tyres.MagicFormula": Call(
        tyres.MagicFormula,
        {"B": 10.0, "C": 1.5, "friction": 1.0, "E": 0.0},
        {"B": "positive", "C": "positive", "friction": "positive", "E": "finite"},
        with_tyre,
        frozenset((name, "two") for name in ("B", "C", "friction", "E")),
    ),
    "iso_8608": Call(
        contact.iso_8608,
        {"road": "C", "key": jax.random.key(0)},
        {"road": "option", "key": "option"},
    ),
}

FLEXIBLE = {
    "flexible.Rectangle": Call(
        flexible.Rectangle,
        {"width": 0.1, "height": 0.1},
        {"width": "positive", "height": "positive"},
        lambda x: beam(section=x),
    ),
    "flexible.Round": Call(
        flexible.Round, {"radius": 0.1}, {"radius": "positive"}, lambda x: beam(section=x)
    ),
    "flexible.Tube": Call(
        flexible.Tube,
        {"radius": 0.1, "thickness": 0.01},
        {"radius": "positive", "thickness": "positive"},
        lambda x: beam(section=x),
    ),
    "flexible.beam": Call(
        lambda **given: beam(**given),
        {"section": SECTION, "length": 1.0, "E": 2e11, "G": 8e10, "density": 7800.0},
        {
            "section": "section",
            "length": "positive",
            "E": "positive",
            "G": "positive",
            "density": "positive",
            "n_elements": "count",
            "theory": "option",
            "interfaces": "names",
            "method": "option",
            "frame": "option",
            "damping": "option",
            "nodes": "mapping",
        },
        skip=skip("damping", "number", "empty"),
    ),
    "flexible.Member": Call(
        flexible.Member,
        {"start": "a", "end": "b", "section": SECTION, "E": 2e11, "G": 8e10, "density": 7800.0},
        {"start": "name", "end": "name", "section": "section", "n_elements": "count"},
    ),
    "flexible.frame": Call(
        flexible.frame,
        {
            "nodes": {"a": [0, 0, 0], "b": [1.0, 0, 0]},
            "members": {"m": MEMBER},
            "interfaces": ["a"],
            "n_modes": 2,
        },
        {"nodes": "mapping", "members": "mapping", "interfaces": "names", "n_modes": "count"},
        skip=skip("n_modes", "zero"),
    ),
    "flexible.reduce": Call(
        flexible.reduce,
        {
            "K": np.diag([0.0] * 6 + [1e3] * 6) * 1.0,
            "M": np.eye(12),
            "positions": [[0, 0, 0], [1.0, 0, 0]],
            "interfaces": {"base": 0},
            "n_modes": 2,
        },
        {
            "K": "matrix",
            "M": "matrix",
            "positions": "matrix",
            "interfaces": "mapping",
            "n_modes": "count",
            "method": "option",
            "frame": "option",
        },
        skip=skip("n_modes", "zero"),
    ),
    "flexible.from_mesh": Call(
        flexible.from_mesh,
        {"E": 1e9, "nu": 0.3, "density": 1e3, "interfaces": {"base": [0]}, "unit": 1.0},
        {"mesh": "path"},
    ),
    "sensors.Stress": Call(
        read_stress,
        {"body": "part", "node": "tip"},
        {"body": "name", "node": "node"},
    ),
    "flexible.von_mises": Call(
        flexible.von_mises, {"stress": [1.0, 2, 3, 4, 5, 6]}, {"stress": "vector"}
    ),
    "flexible.read_mbdyn": Call(flexible.read_mbdyn, {}, {"path": "path"}),
    "flexible.read_matrices": Call(flexible.read_matrices, {"mass": "x"}, {"stiffness": "path"}),
}

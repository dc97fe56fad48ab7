"""Everything that a picture of a mechanism draws as a mesh."""

from collections.abc import Iterator, Mapping

from ..analyses.motion import AbstractMotion
from .contacts import contact_drawings
from .scene import Drawing, body_drawings, ground_drawings, joint_drawings, spring_drawings
from .stage import Stage
from .visuals import Visuals, visual_bodies, visual_drawings


def drawings(
    stage: Stage,
    solution: AbstractMotion,
    palette: Mapping[str, int],
    contours: str | None = None,
    axes_of_bodies: bool = True,
    visuals: Visuals | None = None,
) -> Iterator[Drawing]:
    """Everything that is drawn as a mesh, with its poses at the keyframes of the stage.

    Bodies with visuals are drawn by these, without rods and boxes.
    """
    hidden = visual_bodies(stage.mechanism, visuals) if visuals else set()
    yield from ground_drawings(stage)
    yield from body_drawings(stage, palette, contours, axes_of_bodies, hidden)
    if visuals:
        yield from visual_drawings(stage, visuals)
    yield from joint_drawings(stage)
    yield from spring_drawings(stage)
    yield from contact_drawings(stage, solution)


__all__ = ["drawings"]

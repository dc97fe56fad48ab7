"""Colours of bodies in pictures."""

from collections.abc import Mapping

from ..errors import ModelError
from ..model.model import unknown

# Okabe & Ito's colours, which colour-blind people can distinguish.
PALETTE = (0x0072B2, 0xE69F00, 0x009E73, 0xCC79A7, 0x56B4E9, 0xD55E00, 0x8C6BB1, 0x999933)


def palette_of(names: list[str], given: Mapping[str, int | str] | None) -> dict[str, int]:
    """Colours of bodies by name, 0xrrggbb; **raises** `ModelError` for one that is none."""
    palette = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    for name, color in (given or {}).items():
        if name not in palette:
            raise KeyError(unknown("animate: colors: unknown body", name, palette))
        try:
            value = int(color.removeprefix("#"), 16) if isinstance(color, str) else int(color)
        except ValueError:
            value = -1
        if not 0 <= value <= 0xFFFFFF:
            raise ModelError(f"animate: the colour of {name!r} must be #rrggbb, got {color!r}")
        palette[name] = value
    return palette

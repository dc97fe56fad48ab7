"""What figures of all kinds share."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that pyplot does not know, and that notebooks show nevertheless, once."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


__all__ = ["NotebookFigure"]

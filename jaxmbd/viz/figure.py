"""Common parts of all figures."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure outside of pyplot, which notebooks show once."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()

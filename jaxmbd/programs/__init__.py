"""Programs of analyses, and what is known of them from one process to the next."""

from .progress import with_progress
from .storage import stored

__all__ = ["stored", "with_progress"]

"""How an error is planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: (object or module, name, value): setattr, or what undoes itself in a test.
Patch = Callable[[Any, str, Any], None]

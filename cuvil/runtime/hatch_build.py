"""Build hook of the wheel: compiles the runtime for every target, so that installing needs no compiler."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RuntimeBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Puts the runtime and the runner of each target under `cuvil/_prebuilt/`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds what is missing or out of date; a source distribution carries the sources alone."""
        if self.target_name != "wheel":
            return
        sys.path.insert(0, self.root)
        from cuvil.toolchain import build_prebuilt

        build_prebuilt()
        build_data["artifacts"].append("/cuvil/_prebuilt/*/*")

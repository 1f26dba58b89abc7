"""ELF shared libraries as the dynamic loader sees them: file -> `ElfImage`."""

from cuvil_regress.elf.image import ElfImage, Segment, VersionDefinition, VersionNeed
from cuvil_regress.elf.reader import read

__all__ = ["ElfImage", "Segment", "VersionDefinition", "VersionNeed", "read"]

"""The best record for this machine, chosen by what the runtime finds in its processor."""

from __future__ import annotations

from cuvil.errors import ToolchainError
from cuvil.runtime_binding import find_missing_features
from cuvil.targets.target import NATIVE, TARGET_NAMES, Target, find_target
from cuvil.toolchain import host_target


def resolve_target(name: str) -> Target:
    """The record of that name; `native` is the one for this machine.

    Raises:
        UsageError: there is none.
        ToolchainError: it is `native`, and there is no record for this machine.
    """
    return native_target() if name == NATIVE else find_target(name)


def native_target() -> Target:
    """The record that asks for most of what this machine has; between equals, the platform's default.

    Processor features decide, for a processor's name is often wrong on virtual machines.

    Raises:
        ToolchainError: there is no record for this machine.
    """
    default = find_target(host_target())
    records = [find_target(name) for name in TARGET_NAMES]
    fitting = [record for record in records if find_obstacle(record) is None]
    if not fitting:
        raise ToolchainError(f"target 'native': no record fits; {default.name!r} {find_obstacle(default)}")
    return max(fitting, key=lambda record: record.demand)


def find_obstacle(target: Target) -> str | None:
    """Why this machine can't run code for the target, as the end of a sentence; None where it can.

    Raises:
        ToolchainError: the runtime of this machine is missing.
    """
    host = host_target()
    if target.platform != host:
        return f"needs a machine of {target.platform!r}; this is {host!r}"
    return find_missing_features(target.isa_bits, target.min_vlen_bits)

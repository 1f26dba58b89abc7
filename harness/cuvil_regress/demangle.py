"""C++ symbol names for people, through the C++ library's own demangler."""

from __future__ import annotations

import ctypes
from functools import cache

from cuvil_regress.elf.source import printable

_MAX_NAME_BYTES = 4096


@cache
def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    """libstdc++ and the C library, None on a machine without libstdc++."""
    try:
        cxx, c = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
    except OSError:
        return None
    cxx.__cxa_demangle.restype = ctypes.c_void_p
    cxx.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    c.free.argtypes = [ctypes.c_void_p]
    return cxx, c


def demangle(name: bytes) -> str:
    """`_ZN3c104WarnC1Ev` -> `c10::Warn::Warn()`.

    A name that is not C++ comes back as it is, and so does every name where libstdc++ is missing.
    Characters that would break a line are escaped.
    """
    libraries = _libraries()
    if libraries is None or not name.startswith(b"_Z") or len(name) > _MAX_NAME_BYTES:
        return printable(name)
    cxx, c = libraries
    address = cxx.__cxa_demangle(name, None, None, None)
    if not address:
        return printable(name)
    try:
        return printable(ctypes.string_at(address))
    finally:
        c.free(address)

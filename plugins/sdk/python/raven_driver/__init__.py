# SPDX-License-Identifier: Apache-2.0
"""What the author of a Raven driver in Python imports.

A driver is a class with three methods; raven_driver.serve(MyDriver()) is the whole main program:

    class MyDriver:
        def info(self):                      # a raven_driver.Info: name, options, kinds, annotations
        def configure(self, values):         # {group: {name: value}}; returns watches, or raises Refused
        def translate(self, obj, needs):     # a dict and a Needs; returns a raven_driver.Set

translate is a pure function: it reads no clock, file, environment or network and keeps nothing between calls. All messages of
the contract are here under their own names (Set, Resource, Port, ...); raven/v1/driver.proto says what each field means.
"""

from . import contract
from .contract import *  # noqa: F401,F403 - the messages of the contract
from .language import (  # noqa: F401
    Needs, Refused, Unanswered, at, diagnostic, from_role, name_of, output, ref, role, text, texts, values,
)
from .server import serve  # noqa: F401

Info = contract.GetInfoResponse

__version__ = "1"

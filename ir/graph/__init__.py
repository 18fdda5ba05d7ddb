"""Programs as graphs: instructions, computations, modules, and the base class of ops with their attributes. Importing
this package registers all ops.
"""

from ..ops import calls as calls

"""The ops, by family. Importing this package registers them all."""

from .. import graph as graph  # isort: skip (it imports ops in the order of their needs)
from . import async_ops as async_ops
from . import bitcast as bitcast
from . import collectives as collectives
from . import comparison as comparison
from . import control as control
from . import conversion as conversion
from . import convolution as convolution
from . import domain as domain
from . import dot as dot
from . import dynamic as dynamic
from . import elementwise as elementwise
from . import fft as fft
from . import gather as gather
from . import linear_algebra as linear_algebra
from . import normalization as normalization
from . import ragged_all_to_all as ragged_all_to_all
from . import ragged_dot as ragged_dot
from . import random as random
from . import reduce as reduce
from . import scaled_dot as scaled_dot
from . import scan as scan
from . import scatter as scatter
from . import select_and_scatter as select_and_scatter
from . import shaping as shaping
from . import slicing as slicing
from . import sort as sort
from . import stochastic_convert as stochastic_convert
from . import structure as structure
from . import topk as topk
from . import transfers as transfers
from . import window as window

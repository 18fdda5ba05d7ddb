"""The ops, by family. Importing this package registers them all."""

from . import async_ops as async_ops
from . import bitcast as bitcast
from . import collectives as collectives
from . import comparison as comparison
from . import control as control
from . import conversion as conversion
from . import convolution as convolution
from . import custom_call as custom_call
from . import dot as dot
from . import elementwise as elementwise
from . import fft as fft
from . import gather as gather
from . import linear_algebra as linear_algebra
from . import normalization as normalization
from . import ragged_dot as ragged_dot
from . import random as random
from . import reduce as reduce
from . import scan as scan
from . import scatter as scatter
from . import select_and_scatter as select_and_scatter
from . import shaping as shaping
from . import slicing as slicing
from . import sort as sort
from . import structure as structure
from . import topk as topk
from . import window as window

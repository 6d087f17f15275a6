"""Python values <-> JSON, never pickle.

In:   values and the annotations they travel under.
Out:  JSON bytes, and the value as it will be restored from them.
What is handed to a workflow live is always what a replay would restore; a value
that would come back as something else is refused where it is made. Knows nothing of runs.
"""

from perdure.codec.signature import Arguments, Signature, merged_arguments
from perdure.codec.values import ValueType
from perdure.codec.wire import LARGEST_VALUE, dump, load

__all__ = ["LARGEST_VALUE", "Arguments", "Signature", "ValueType", "dump", "load", "merged_arguments"]

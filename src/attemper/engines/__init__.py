"""Many files, many machines: shards become sketches, sketches are added in a fixed order, the sum is fitted.

The road of a shard: `shards` says what is sent to a worker and what it sends back; `pools` gives the
workers (threads, processes, any `concurrent.futures.Executor`, Dask, Ray) one face; `run` hands shards
out and takes sketches in; `tree` adds them; `kept` stores those that are finished; `sharded` is what users call.
"""

from attemper.engines.kept import forget
from attemper.engines.pools import ENGINES
from attemper.engines.sharded import fit_sharded, merged, sketch_sharded
from attemper.engines.shards import sketch_pieces

__all__ = ["ENGINES", "fit_sharded", "forget", "merged", "sketch_pieces", "sketch_sharded"]

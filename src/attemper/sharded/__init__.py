"""Many files, many machines: shards become sketches, sketches are added in a fixed order, the sum is fitted.

The road of a shard: `shards` defines what is sent to a worker and what it sends back; `engines` are the workers
(joblib's processes, threads, any `concurrent.futures.Executor`, Dask, Ray); `tree` adds the sketches; `cache` stores
those that are finished; `sharded` is what users call.
"""

from attemper.sharded.cache import clear_cache
from attemper.sharded.engines import ENGINES
from attemper.sharded.sharded import fit_sharded, merge_sketches, sketch_sharded
from attemper.sharded.shards import sketch_pieces

__all__ = ["ENGINES", "clear_cache", "fit_sharded", "merge_sketches", "sketch_pieces", "sketch_sharded"]

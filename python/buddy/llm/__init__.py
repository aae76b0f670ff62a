"""Language models with compressed weights and KV cache (docs/guide/models.md)."""

from .cache import PagedCache
from .decoder import Decoder, packed_layer
from .shapes import SHAPES, Shape

__all__ = ["SHAPES", "Decoder", "PagedCache", "Shape", "packed_layer"]

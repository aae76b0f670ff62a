"""Language models with compressed weights and KV cache (docs/guide/models.md).

    model = buddy.llm.load("Llama-3.1-8B")
    print(model.generate("The sea", max_new_tokens=100))
"""

from .cache import PagedCache
from .decoder import Decoder, packed_layer
from .model import LanguageModel, load
from .sampling import Sampling
from .shapes import SHAPES, Shape
from .weights import Unsupported

__all__ = ["SHAPES", "Decoder", "LanguageModel", "PagedCache", "Sampling", "Shape", "Unsupported", "load", "packed_layer"]

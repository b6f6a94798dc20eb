"""The architectures of Hugging Face's `transformers` that our models can be: tables for both directions.

architecture   what a table has: shapes, and what cannot be represented
names          parameters under our names and theirs
openai_gpt     GPT-1
gpt2           GPT-2
llama          LLaMA, and those built like it
cohere         PaLM's block
bert           BERT, an encoder
"""

from __future__ import annotations

from dupt_swarm.learning.architectures.architecture import Architecture
from dupt_swarm.learning.architectures.bert import BERT
from dupt_swarm.learning.architectures.cohere import COHERE
from dupt_swarm.learning.architectures.gpt2 import GPT2
from dupt_swarm.learning.architectures.llama import LLAMA
from dupt_swarm.learning.architectures.openai_gpt import OPENAI_GPT

ARCHITECTURES: dict[str, Architecture] = {each.name: each for each in (OPENAI_GPT, GPT2, LLAMA, COHERE, BERT)}

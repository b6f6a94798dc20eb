"""What a state of the swarm writes when it is given a prompt: short enough for a record, and fit for one."""

from __future__ import annotations

import threading

from dupt_swarm.command_line.printable import is_harmless
from dupt_swarm.errors import UsageError
from dupt_swarm.learning.decoder.gpt import GPT
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.generation.text import continue_text
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Objective
from dupt_swarm.node.record import SAMPLE_BYTES_MAX, SampleRecord
from dupt_swarm.settings import EvaluatorSettings

# Of `SAMPLE_BYTES_MAX`, so that there is room for what the model writes.
PROMPT_BYTES_MAX = 200
TEMPERATURE, TOP_K, SEED = 0.8, 40, 0


class Sampler:
    """Lets one state after the other continue the same prompt, with the same random numbers."""

    def __init__(
        self,
        settings: EvaluatorSettings,
        objective: Objective,
        tokenizer: Tokenizer,
        stopping: threading.Event,
    ) -> None:
        """Continue the prompt of ``settings``; once ``stopping`` is set, end at once.

        Raises:
            UsageError: see `check_prompt`; or the swarm learns a task.
        """
        check_prompt(settings)
        if objective.supervised:
            raise UsageError(
                f"this swarm learns a task ({objective.kind}), and writes no text; leave the prompt out",
                setting="prompt",
            )
        self._prompt, self._tokenizer, self._stopping = settings.prompt or "", tokenizer, stopping
        self._sampling = Sampling(settings.sample_tokens, temperature=TEMPERATURE, top_k=TOP_K, seed=SEED)

    def sample(self, model: GPT) -> SampleRecord:
        """What ``model`` writes, as far as there is room for it."""
        prompt, text = harmless(self._prompt), ""
        room = SAMPLE_BYTES_MAX - len(prompt.encode())
        for piece in continue_text(model, self._tokenizer, self._prompt, self._sampling):
            text += harmless(piece)
            if len(text.encode()) > room or self._stopping.is_set():
                break
        return SampleRecord(prompt=prompt, text=cut(text, room))


def check_prompt(settings: EvaluatorSettings) -> None:
    """Refuse a prompt that leaves no room for an answer.

    Raises:
        UsageError: it is too long, or not valid Unicode.
    """
    try:
        length = len((settings.prompt or "").encode())
    except UnicodeEncodeError as error:
        raise UsageError("the prompt is not valid Unicode; write it in UTF-8", setting="prompt") from error
    if length > PROMPT_BYTES_MAX:
        raise UsageError(
            f"the prompt has {length} bytes, and others see at most {PROMPT_BYTES_MAX}; shorten it",
            setting="prompt",
        )


def harmless(text: str) -> str:
    """``text`` without control characters and changes of direction; see `printable`."""
    return "".join(filter(is_harmless, text))


def cut(text: str, size: int) -> str:
    """The beginning of ``text`` that has at most ``size`` bytes, in whole characters."""
    return text.encode()[:size].decode(errors="ignore")

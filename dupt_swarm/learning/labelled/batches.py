"""Deals out examples as batches."""

from __future__ import annotations

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.epochs import EpochBatches
from dupt_swarm.learning.labelled.examples import ExampleBatch, Examples


class LabelledBatches(EpochBatches[ExampleBatch]):
    """The examples of one peer without end, in an order of its own in each epoch.

    Iterating gives what `Examples.batch` does. The state counts examples, so it fits any batch size.

    Attributes:
        tokens_per_example: what an example counts for in the swarm's rounds, however long it is.
    """

    def __init__(
        self, examples: Examples, batch_size: int, seed: int, peer: str, *, across_epochs: bool = True
    ) -> None:
        """``seed`` and ``peer`` decide the order.

        Args:
            examples: to be dealt out.
            batch_size: of each batch.
            seed: the manifest's.
            peer: whose examples these are.
            across_epochs: a batch may span two epochs; otherwise the last one of an epoch may be smaller.

        Raises:
            CorpusError: there are no examples.
        """
        if not len(examples):
            raise CorpusError("there are no labelled examples to train on; give some")
        self.tokens_per_example = examples.tokens_per_example
        self._examples, self._batch_size = examples, batch_size
        super().__init__(len(examples), seed, peer)
        self._take = self._epochs.take if across_epochs else self._epochs.take_of_one

    def __next__(self) -> ExampleBatch:
        """The next ``(tokens, lengths, labels)``, on the CPU."""
        return self._examples.batch(self._take(self._batch_size))

"""Decentralized unsupervised pre-training: independent oracles train one model together.

from dupt_swarm import GPT, CollaborativeOptimizer, Swarm     to train: see `Swarm.join`
from dupt_swarm import block_matrices                          to train a model of your own with Muon
from dupt_swarm import unigrams_of            to train a `GPT` by hand with the model's scale of embeddings
from dupt_swarm import SavedModel, pull                        to take the model away: see `pulling`
from dupt_swarm import verify                                  to check that its swarm's rounds lead to it
from dupt_swarm import audit                                   to compute its past rounds again
from dupt_swarm import Bert, EncoderDecoder                    what it may be besides a `GPT`
from dupt_swarm import evaluate_documents, continue_text, Sampling, export                 to use it
from dupt_swarm import fill, translate, BeamSearch             to use an encoder, an encoder-decoder
from dupt_swarm import Finetuner, LabelledFiles, LabelledTask                 to teach it a task

swarm           `Swarm`: a manifest, and this process's node in the swarm
checkpoint      what a checkpoint holds, and which is the newest whole one
discovery       finding a swarm by the addresses of some of its peers
optimizer/      `CollaborativeOptimizer`: inner steps, and the rounds between them
oracle/         a trainer, a corpus and a swarm
offer/          text that a swarm offers to oracles without a corpus
models/         a swarm's model, taken away: in a folder, in other formats, fine-tuned
evaluator       measures each new state, trains nothing
node/           the trainer's side of its node; no hivemind
network/        inside the node process: everything hivemind
learning/       torch: tokenizer, corpus, model, strategies, trainer; no network
replica/        what the swarm agrees on: state, digest, outer step, codec, aggregation
manifest/       what all peers share: one TOML file, validated, frozen and hashed
tasks/          what can be learned besides language: a file per task
presets/        complete manifests to start from
settings        what concerns one machine only
organiser/      the key of who organises a swarm: invitations, revocations
disk/           the state folder, atomic writes, the disk limit
metrics/        the tables of all metrics
command_line/   what the programs in `peers/` and `monitor/` share
fields          what statements, logs and records have in common: ids, digests, counts
speed           units per second over the last ten seconds
errors          every error that a caller may catch, with its exit code
version         what peers tell one another
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dupt_swarm.learning.generation.beam import BeamSearch as BeamSearch
    from dupt_swarm.learning.generation.filling import fill as fill
    from dupt_swarm.learning.generation.sampling import Sampling as Sampling
    from dupt_swarm.learning.generation.text import continue_text as continue_text
    from dupt_swarm.learning.generation.translate import translate as translate
    from dupt_swarm.learning.inner.matrices import block_matrices as block_matrices
    from dupt_swarm.learning.inner.unigrams import unigrams_of as unigrams_of
    from dupt_swarm.learning.labelled.files import LabelledFiles as LabelledFiles
    from dupt_swarm.learning.rolling import evaluate_documents as evaluate_documents
    from dupt_swarm.learning.transformer.bert import Bert as Bert
    from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder as EncoderDecoder
    from dupt_swarm.learning.transformer.gpt import GPT as GPT
    from dupt_swarm.models.auditing import audit as audit
    from dupt_swarm.models.exporting import export as export
    from dupt_swarm.models.fine_tuning import Finetuner as Finetuner
    from dupt_swarm.models.fine_tuning import LabelledTask as LabelledTask
    from dupt_swarm.models.pulling import pull as pull
    from dupt_swarm.models.saved_model import SavedModel as SavedModel
    from dupt_swarm.models.verifying import verify as verify
    from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer as CollaborativeOptimizer
    from dupt_swarm.swarm import Swarm as Swarm

# Importing the package loads neither torch nor hivemind, so that `--help` answers at once.
_HOMES = {
    "GPT": "learning.transformer.gpt",
    "BeamSearch": "learning.generation.beam",
    "Bert": "learning.transformer.bert",
    "CollaborativeOptimizer": "optimizer.collaborative",
    "EncoderDecoder": "learning.transformer.encoder_decoder",
    "Finetuner": "models.fine_tuning",
    "LabelledFiles": "learning.labelled.files",
    "LabelledTask": "models.fine_tuning",
    "Sampling": "learning.generation.sampling",
    "SavedModel": "models.saved_model",
    "Swarm": "swarm",
    "audit": "models.auditing",
    "block_matrices": "learning.inner.matrices",
    "unigrams_of": "learning.inner.unigrams",
    "continue_text": "learning.generation.text",
    "evaluate_documents": "learning.rolling",
    "export": "models.exporting",
    "fill": "learning.generation.filling",
    "pull": "models.pulling",
    "translate": "learning.generation.translate",
    "verify": "models.verifying",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("dupt_swarm.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'dupt_swarm' has no attribute {name!r}")
    return getattr(import_module(f"dupt_swarm.{_HOMES[name]}"), name)

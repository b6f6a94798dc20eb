"""Training on one machine: torch, no network.

tokenizer        text to ids: byte-level BPE, trained once per swarm, or another model's
tokenizer_json/  the file of whatever model: opened, refused, understood
reading          files that somebody else wrote: compressed, damaged, Parquet
wikipedia/       dumps of MediaWiki: articles without their markup
documents        reads text, JSON lines, Parquet and dumps in pieces that fit in memory
left_out         reads a corpus in spite of files that cannot be read
token_files      token ids on disk, memory-mapped
corpus           documents to tokens, split into training and held-out parts
mixture          several corpora, each with a weight
offered          text that comes in shards, a few at a time
batches          shuffled blocks of tokens, of one corpus or several, resumable
masking          blocks with masked tokens, and pairs of texts, for an encoder
epochs           numbers in a new order in each epoch, resumable
labelled/        examples of a task, and pairs of texts: tables read, encoded, dealt out
answers          what an answer to a task is: a label, a choice or a score
finetuning/      learning a task from labelled examples, on one machine
transformer/     the models, decoder and encoder: a file per part
architectures/   which of Hugging Face's architectures it can be: tables for both directions
importing/       a model from a folder of another program
objectives/      what is learned: language, or a task besides it
device           which device, which precision, compiled or not
data_parallel/   several devices that compute the same steps
room             how many sequences a GPU has room for at once, and what gives way for one
activation_checkpointing  less memory for some of the speed
trainer          inner steps; the optimizer is handed in
inner/           the inner optimizer: a file per kind
generation/      a model continues a text, fills its gaps, or translates it
strategies/      inner steps and what a round contributes: DiLoCo, gradient
evaluation       the loss on held-out text
rolling          the loss on whole documents, in sliding windows
pseudo_likelihood  how likely an encoder finds a text, token by token
quality          what is measured of a model: its loss, bits per byte, accuracy
interruptible    looking into steps and evaluations, and giving them up
cores            how many this process may use, and how much of them is used
driver           what NVIDIA's driver knows of a GPU
threads          how many threads compute on a CPU that others use too
stopwatch        how long the phases of a step take
export/          a model as a folder for other programs
safe_state       nested structures with tensors in one safetensors file
"""

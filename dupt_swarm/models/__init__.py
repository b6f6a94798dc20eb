"""A swarm's model, taken away: in a folder of its own, outside of any swarm.

saved_model     `SavedModel`: manifest, tokenizer and state in a folder
pulling         `pull`: takes the newest one from a swarm
auditing        `audit`: computes its past rounds again
verifying       `verify`: checks it by the chain of its rounds, offline
exporting       `export`: writes it for other programs
measured        a state that an evaluator measured, as such a folder
harness         `Harness`: lm-evaluation-harness on one, in a process of its own
harness_process  that process
publishing      `Publisher`: writes one measured state after the other, for whatever uploads folders
fine_tuning     `Finetuner`: it learns a task
beginning       a swarm begins from it
"""

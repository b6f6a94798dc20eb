"""What a swarm can learn besides language: each task is declared in one file, and entered in `TASKS`.

From there follow what manifests may name, what the commands offer, how examples are read, and what a model's
card says. Input transformations are those of Radford et al. 2018, section 3.3 and figure 1.

task             `Task`: what each declares; start, delimiter and extract
classification   ⟨s⟩ text ⟨e⟩
entailment       ⟨s⟩ premise $ hypothesis ⟨e⟩
similarity       both orders, each processed by itself, added before W_y
multiple_choice  ⟨s⟩ context $ choice ⟨e⟩ for each choice
"""

from dupt_swarm.tasks.classification import Classification
from dupt_swarm.tasks.entailment import Entailment
from dupt_swarm.tasks.multiple_choice import MultipleChoice
from dupt_swarm.tasks.similarity import Similarity
from dupt_swarm.tasks.task import Task

TASKS: dict[str, Task] = {
    task.kind: task for task in (Classification(), Entailment(), Similarity(), MultipleChoice())
}

__all__ = ["TASKS", "Task"]

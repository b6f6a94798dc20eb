"""``dupt-model``: take the model away. A file per command.

cli        the program
pull       the newest model of a swarm
inspect    what a folder or manifest is
verify     whether its swarm's rounds lead to it
eval       measure it, on what its kind takes
measures/  what eval measures, by the model's kind
generate   continue a text
fill       fill the gaps of a text
export     for other programs
finetune   teach it a task
predict    let it answer
translate  let it write a text for another
lines      what commands write line by line
"""

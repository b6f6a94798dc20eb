"""`dupt-peer`, the program that volunteers and organisers run, one file per command; `dupt-model` beside it.

cli              the program
lazy_group       imports a command when it runs, so that --help is quick; `-v`
model/           `dupt-model`: take the model away
new              a manifest with its tokenizer, or the first state of a model that exists
offering         text that it offers, checked and written beside it
bootstrap        the first peer
invite           a token to join with
revoke           cuts off who came by one
join             an oracle
evaluate         an independent evaluator
status           the swarm now; this machine's peer with --health
ledger           who has given what, ever
audit            past rounds, computed again
check            preflight: is this machine fit to join?
demo             a whole swarm on this machine
options          what several commands share
address_options  where a peer listens, and which addresses it announces
interruption     Ctrl-C, SIGTERM, a terminal that is closed
processes        our programs as child processes, which end with their parent
checks/          what `check` looks at
service/         an oracle that starts with the machine
control/         how the owner reaches a running peer: pause, resume, finish, stop
screen/          what `join` and the demo show
metrics/         `--metrics-addr`: a peer's own metrics
systemd/         the unit for volunteers without Docker
"""

"""What the tests share.

waiting          wait until something holds
clock            a clock that stands still until the test moves it
donors           that give nothing, and who fetches text that the swarm offers
publishing       somebody who tells records in many names, in a thread
noting_bucket    a token bucket that notes what passes
held_loop        how long one callback keeps an event loop from all others
loopback         addresses of this machine, free ports, an address where nobody is
texts            folders of real text to train on
dumps            small dumps of wikis
tiny             manifests and settings of very small swarms
smaller          manifest files of smaller models
contributions    contributions as an oracle sends them
vectors          vectors that are encoded or decoded as a whole
averages         the average of a round, put together from its parts
foreign_models   folders as transformers writes them, with random weights
foreign_tokenizers  such as well-known models have
full_disk           on which nothing more fits
saved_models     model folders with very small models
hugging_face     transformers without the network
tasks            very small tasks, and texts that are easy to tell apart
programs         our programs, started as people do
warm             starting programs without importing everything anew each time
spawning         starting hivemind's daemon without a fork of the node
unpacked         hivemind's daemon, which packed takes long to start
costs            what rounds cost an oracle
screen           what the join screen is shown
fake_gpu         a CUDA device that computes nothing
imports          what a module of ours imports
quick            which tests start no process
spread           in which order the files of tests run
commands         the programs, and each of their commands
lacking          what a machine lacks that a test needs
leftovers        processes and files that a test leaves behind
loops            what an event loop must not be silent about
invented         swarms as the monitor sees them, without peers
driven_swarm     a first peer and oracles whose rounds the test drives
sharing_groups   groups that share their contributions, with their keys
kept_rounds      rounds in a log, without a swarm that made them
swarm_program    an oracle in a process of its own
direct           services that call one another in this process
memory           what a trainer and its node share, as a test fills it
stranger         a peer with plain hivemind, which may send anything
signed_records   records of peers that exist only as keys
chaos/           swarms to be maltreated
turncoats/       a voter that turns against the others
namespaces       a network of its own, with routers that can be cut (root)
prometheus       a watched swarm with a real Prometheus
debian           trees of it (root)
containers       swarms in containers (root)
docker           a Docker engine with a network of its own (root)
"""

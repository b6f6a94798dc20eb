"""What the tests share.

The tests themselves:
warm                starting programs without importing everything anew each time
spawning            starting hivemind's daemon without a fork of the node
unpacked            hivemind's daemon, which packed takes long to start
imports             what a module of ours imports
quick               which tests start no process
spread              in which order the files of tests run
lacking             what a machine lacks that a test needs
leftovers           processes and files that a test leaves behind
loops               what an event loop must not be silent about
waiting             wait until something holds
clock               a clock that stands still until the test moves it, times of day in Berlin

Small things to test with:
loopback            addresses of this machine, free ports, an address where nobody is
texts               folders of real text to train on
dumps               small dumps of wikis
tiny                manifests and settings of very small swarms
smaller             manifest files of smaller models
small_models        a small model of each preset, and a batch for it
saved_models        model folders with very small models
encoders            very small encoders, and documents
pairs               very small encoder-decoders, and pairs of texts
tasks               very small tasks, and texts that are easy to tell apart
varied              models whose biases and gains matter
foreign_models      folders as transformers writes them, with random weights
foreign_tokenizers  such as well-known models have
hugging_face        transformers without the network
costs               what rounds cost an oracle
screen              what the join screen is shown
invented            swarms as the monitor sees them, without peers
fake_nvml           a made-up driver of NVIDIA's
fake_gpu/           a CUDA device that computes nothing
full_disk           on which nothing more fits

Rounds and their parts:
contributions       contributions as an oracle sends them
vectors             vectors that are encoded or decoded as a whole
memory              what a trainer and its node share, as a test fills it
words               words of members of an electorate
lies                proofs against peers that contradict themselves
members             of one electorate in one round, who talk at once and lose nothing
kept_rounds         rounds in a log, without a swarm that made them
simulated_rounds    whole swarms in one process, with a network that loses and delays
simulated_liars     peers of such a swarm that lie
schedules           what happens to such swarms, and what must hold
direct              services that call one another in this process
held_loop           how long one callback keeps an event loop from all others
noting_bucket       a token bucket that notes what passes
hello               what peers say of themselves
fetching            a peer that fetches text which the swarm offers
deciders            peers that decide together over loopback
turncoats/          a voter that turns against the others
signed_records      records of peers that exist only as keys
publishing          somebody who tells records in many names, in a thread
stranger            a peer with plain hivemind, which may send anything

Whole programs and swarms:
commands            the programs, and each of their commands
programs            our programs, started as people do
swarm_program       an oracle in a process of its own
sessions            oracles that train beside a test, or are stopped and started again
driven_swarm        a first peer and oracles that the test trains, or whose rounds it drives
chaos/              swarms to be maltreated
namespaces          a network of its own, with routers that can be cut (root)
prometheus          a watched swarm with a real Prometheus
debian              trees of it (root)
llama_cpp           the real llama.cpp (root)
containers          swarms in containers (root)
docker              a Docker engine with a network of its own (root)
"""

"""How a round ends: how a state is left with others, and how to get to where they are.

To read a round from beginning to end, read these in this order:

deciding     leaves one state after another: a session for each, and answers about the last ones
session      one round on the clock and over the network
round        one member's part in it, from a state to the link that leaves it
ballots      one member's part in deciding what follows a state
remnant      the same where half or more of an electorate is gone: whoever is there goes on with a weak link
stock        the contributions of a round: those that somebody brings, and those that are here
judgement    asks the trainer whether to accept what was computed

What is said in it:

reports      what members tell each other while they decide: report and answer
messages     both as they travel, and what a member has signed as it is kept
desk         where others report, also about the last states
voice        what a member says of one state: signed, and kept
pledges      what this peer has signed, on disk
evidence     who has said what about one state: words that contradict each other
offences     proofs against those who have signed such words: kept, and passed on

How contributions become an average:

exchange     what every exchange does: how contributions come here, and become an average
share        everybody gets all contributions, and computes the average itself
reduce       each member averages one share of the vector
allreduce    one run of that: parts, shares, reducers and senders

What remains of rounds, and getting to where others are:

tally        what our record says of the rounds that have ended
history      the chain of links to our state, in memory and on disk
follow       gets to where others are, by their links
past         learns the links before the state with which we have joined
origins      anchors from which less than a quorum went on, on disk
"""

"""How a round ends; what is here takes the place of `averaging`, and no node runs it yet.

round        one member's part in it, from a state to the link that leaves it
reports      what members tell each other while they decide: report and answer
messages     both as they travel, and what a member has signed as it is kept
deciding     leaves one state after another: a session for each, and answers about the last ones
session      one round on the clock and over the network
desk         where others report, also about the last states
ledger       who has said what about one state: words that contradict each other
pledges      what this peer has signed, on disk
follow       whoever sees others elsewhere gets there, by their links
history      the chain of the rounds so far, in memory and on disk
past         learns the links before the state with which this peer has joined
pauses       when a peer that was asked in vain is asked again
exchange     what every exchange does: how contributions come here, and become an average
share        everybody gets all contributions, and computes the average itself
reduce       each member averages one share of the vector
allreduce    how: the parts of the vector, whose share each is, the average of one
ballots      one member's part in deciding what follows a state
remnant      the same where half or more of an electorate is gone: whoever is there goes on with a weak link
stock        the contributions of a round: those that somebody brings, and those that are here
judgement    asks the trainer what to accept
offences     peers that have contradicted themselves, with the proofs
tally        what the record says of the rounds that were ended here
voice        what a member says of one state: signed, and kept
"""

"""ProposalService: operations of commits that wait for review."""
